package keyfunc_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/seed75154129/ratelimit/keyfunc"
)

// from returns a request from the peer remote, with the lines of X-Forwarded-For.
func from(remote string, forwardedFor ...string) *http.Request {
	r := &http.Request{RemoteAddr: remote, Header: http.Header{}}
	if len(forwardedFor) > 0 {
		r.Header["X-Forwarded-For"] = forwardedFor
	}
	return r
}

// with returns a request with the lines of one header.
func with(header string, lines ...string) *http.Request {
	r := from("203.0.113.9:4711")
	for _, line := range lines {
		r.Header.Add(header, line)
	}
	return r
}

func mustKey(t testing.TB, f keyfunc.Key, r *http.Request) string {
	t.Helper()
	key, err := f.Resolve(r)
	if err != nil {
		t.Fatalf("no key: %v", err)
	}
	return key
}

func wantKey(t *testing.T, f keyfunc.Key, r *http.Request, want string) {
	t.Helper()
	if got, err := f.Resolve(r); got != want || err != nil {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

func wantErr(t *testing.T, f keyfunc.Key, r *http.Request, want error) {
	t.Helper()
	if key, err := f.Resolve(r); key != "" || !errors.Is(err, want) {
		t.Errorf("got %q, %v; want error %v", key, err, want)
	}
}

// wantRefused wants a 400, whatever the key is a part of.
func wantRefused(t *testing.T, k keyfunc.Key, r *http.Request) {
	t.Helper()
	for _, k := range []keyfunc.Key{k, keyfunc.Optional(k), keyfunc.First(k, keyfunc.IP), keyfunc.Required(k, 401)} {
		key, err := k.Resolve(r)
		if refused, ok := errors.AsType[*keyfunc.StatusError](err); key != "" || !ok || refused.Status != http.StatusBadRequest || errors.Is(err, keyfunc.ErrNoKey) {
			t.Errorf("%v: got %q, %v; want 400", k, key, err)
		}
	}
}

// wantFault wants a mistake that Validate reports, and an error for every request
// that neither First nor Optional would pass over.
func wantFault(t *testing.T, k keyfunc.Key, message string) {
	t.Helper()
	got, err := k.Resolve(from("203.0.113.9:4711"))
	if got != "" || err == nil || errors.Is(err, keyfunc.ErrNoKey) || errors.Is(err, keyfunc.ErrSkip) {
		t.Fatalf("got %q, %v; want an error of its own", got, err)
	}
	if err.Error() != message {
		t.Errorf("got error %q; want %q", err, message)
	}
	if err := validate(k); err == nil || err.Error() != message {
		t.Errorf("Validate: got %v; want %q", err, message)
	}
	if got, err := keysOf(k, "1"); got != nil || err == nil {
		t.Errorf("Keys: got %q, %v", got, err)
	}
}

func validate(k keyfunc.Key) error { return k.(keyfunc.Described).Validate() }

func keysOf(k keyfunc.Key, values ...string) ([]string, error) {
	return k.(keyfunc.Described).Keys(values...)
}
