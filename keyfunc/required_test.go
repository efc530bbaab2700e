package keyfunc_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/seed75154129/ratelimit/keyfunc"
)

func TestRequired(t *testing.T) {
	wantKey(t, keyfunc.Required(key("alice"), http.StatusUnauthorized), req, "alice")
	wantErr(t, keyfunc.Required(skip, http.StatusUnauthorized), req, keyfunc.ErrSkip)
	wantErr(t, keyfunc.Required(broken, http.StatusUnauthorized), req, errBroken)
	for _, f := range []keyfunc.Key{
		keyfunc.Required(none, http.StatusUnauthorized),
		keyfunc.Required(key(""), http.StatusUnauthorized),
		// Nothing around it makes another key of a refusal, or none.
		keyfunc.First(keyfunc.Required(none, http.StatusUnauthorized), never),
		keyfunc.Optional(keyfunc.Required(none, http.StatusUnauthorized)),
		keyfunc.Join(key("a"), keyfunc.Required(none, http.StatusUnauthorized)),
		keyfunc.Hashed(keyfunc.Required(none, http.StatusUnauthorized), nil),
		keyfunc.Required(keyfunc.Required(none, http.StatusUnauthorized), http.StatusBadRequest),
	} {
		got, err := f.Resolve(req)
		refused, ok := errors.AsType[*keyfunc.StatusError](err)
		if got != "" || !ok || refused.Status != http.StatusUnauthorized {
			t.Errorf("got %q, %v", got, err)
		}
		if errors.Is(err, keyfunc.ErrNoKey) || errors.Is(err, keyfunc.ErrSkip) {
			t.Errorf("%v may be passed over", err)
		}
	}
	_, err := keyfunc.Required(none, http.StatusBadRequest).Resolve(req)
	if want := "keyfunc: refused with status 400: keyfunc: no key: because"; err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
}
