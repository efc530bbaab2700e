package keyfunc_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	chimiddleware "github.com/go-chi/chi/v5/middleware"

	"github.com/seed75154129/ratelimit/keyfunc"
)

func TestContextAddrWithChi(t *testing.T) {
	f := keyfunc.ContextAddr(chimiddleware.GetClientIPAddr)
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	if _, err := f.Resolve(r); !errors.Is(err, keyfunc.ErrNoKey) {
		t.Errorf("without chi's middleware: %v", err)
	}
	r.RemoteAddr = "10.0.0.2:1234"
	r.Header.Set("X-Forwarded-For", "198.51.100.1, 203.0.113.7")
	var got string
	chimiddleware.ClientIPFromXFF("10.0.0.0/8")(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got, _ = f.Resolve(r)
	})).ServeHTTP(httptest.NewRecorder(), r)
	if got != "203.0.113.7" {
		t.Errorf("got %q", got)
	}
}

type userKey struct{}

func userID(ctx context.Context) (string, bool) {
	id, ok := ctx.Value(userKey{}).(string)
	return id, ok
}

func TestEveryoneSharesOneKey(t *testing.T) {
	wantKey(t, keyfunc.Everyone, from("203.0.113.9:1"), "everyone")
	wantKey(t, keyfunc.Everyone, from("nonsense"), "everyone")
}

func TestContext(t *testing.T) {
	f := keyfunc.Context(userID)
	r := from("203.0.113.9:1")
	wantKey(t, f, r.WithContext(context.WithValue(r.Context(), userKey{}, "alice")), "alice")
	wantErr(t, f, r.WithContext(context.WithValue(r.Context(), userKey{}, "")), keyfunc.ErrNoKey)
	wantErr(t, f, r, keyfunc.ErrNoKey)
}

func TestErrorsCarryThePackageName(t *testing.T) {
	for _, err := range []error{keyfunc.ErrNoKey, keyfunc.ErrSkip} {
		if !strings.HasPrefix(err.Error(), "keyfunc: ") {
			t.Errorf("%q", err)
		}
	}
}
