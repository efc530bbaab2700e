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

func mustKey(t testing.TB, f keyfunc.Func, r *http.Request) string {
	t.Helper()
	key, err := f(r)
	if err != nil {
		t.Fatalf("no key: %v", err)
	}
	return key
}

func wantKey(t *testing.T, f keyfunc.Func, r *http.Request, want string) {
	t.Helper()
	if got, err := f(r); got != want || err != nil {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

func wantErr(t *testing.T, f keyfunc.Func, r *http.Request, want error) {
	t.Helper()
	if key, err := f(r); key != "" || !errors.Is(err, want) {
		t.Errorf("got %q, %v; want error %v", key, err, want)
	}
}

// wantFault wants an error that neither First nor Optional would pass over.
func wantFault(t *testing.T, f keyfunc.Func, message string) {
	t.Helper()
	key, err := f(from("203.0.113.9:4711"))
	if key != "" || err == nil || errors.Is(err, keyfunc.ErrNoKey) || errors.Is(err, keyfunc.ErrSkip) {
		t.Fatalf("got %q, %v; want an error of its own", key, err)
	}
	if err.Error() != message {
		t.Errorf("got error %q; want %q", err, message)
	}
}
