package keyfunc_test

import (
	"context"
	"strings"
	"testing"

	"github.com/seed75154129/ratelimit/keyfunc"
)

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
