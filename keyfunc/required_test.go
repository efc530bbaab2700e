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
	for _, f := range []keyfunc.Func{
		keyfunc.Required(none, http.StatusUnauthorized),
		keyfunc.Required(key(""), http.StatusUnauthorized),
		// Nothing around it makes another key of a refusal, or none.
		keyfunc.First(keyfunc.Required(none, http.StatusUnauthorized), never),
		keyfunc.Optional(keyfunc.Required(none, http.StatusUnauthorized)),
		keyfunc.Join(key("a"), keyfunc.Required(none, http.StatusUnauthorized)),
		keyfunc.Hashed(keyfunc.Required(none, http.StatusUnauthorized), nil),
		keyfunc.Required(keyfunc.Required(none, http.StatusUnauthorized), http.StatusBadRequest),
	} {
		got, err := f(req)
		refused, ok := errors.AsType[*keyfunc.StatusError](err)
		if got != "" || !ok || refused.Status() != http.StatusUnauthorized {
			t.Errorf("got %q, %v", got, err)
		}
		if errors.Is(err, keyfunc.ErrNoKey) || errors.Is(err, keyfunc.ErrSkip) {
			t.Errorf("%v may be passed over", err)
		}
	}
	_, err := keyfunc.Required(none, http.StatusBadRequest)(req)
	if want := "keyfunc: refused with status 400: keyfunc: no key: because"; err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
}

func TestRequiredMistakesAreFaults(t *testing.T) {
	for _, status := range []int{0, 200, 399, 500} {
		if key, err := keyfunc.Required(key("a"), status)(req); key != "" || err == nil {
			t.Errorf("status %d: got %q, %v", status, key, err)
		}
	}
	wantFault(t, keyfunc.Required(nil, 500), "keyfunc: Required: Func 1 of 1 is nil\nkeyfunc: Required: status 500: must be 400 to 499")
}
