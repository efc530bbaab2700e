package keyfunc_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	chimiddleware "github.com/go-chi/chi/v5/middleware"

	"github.com/seed75154129/ratelimit/keyfunc"
)

func TestContextAddrIsTheKeyOfTheAddress(t *testing.T) {
	for text, want := range map[string]string{
		"203.0.113.7":          "203.0.113.7",
		"::ffff:203.0.113.7":   "203.0.113.7",
		"2001:db8::1":          "2001:db8::/64",
		"fe80::1%eth0":         "fe80::/64",
		"64:ff9b::203.0.113.7": "203.0.113.7",
	} {
		f := keyfunc.ContextAddr(func(context.Context) netip.Addr { return netip.MustParseAddr(text) })
		if got, err := f.Resolve(httptest.NewRequest(http.MethodGet, "/", nil)); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", text, got, err, want)
		}
	}
}

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
