package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// A discard is a ResponseWriter whose header can be used again.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(int)             {}
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }

// What a request costs on its way through the middleware: one that no rule
// matches, one that is skipped, and one that three plain rules apply to.
func BenchmarkHandler(b *testing.B) {
	rules := []ratelimit.Rule{
		{Name: "a", Key: keyfunc.IP, Limit: algorithms.PerHour(90_000_000), Match: []string{"/api/"}},
		{Name: "b", Key: keyfunc.IP, Limit: algorithms.Limit{Rate: 90_000_000, Period: 1e9, Algorithm: algorithms.TokenBucket}, Match: []string{"GET /api/{x}"}},
		{Name: "c", Key: keyfunc.IP, Limit: algorithms.Limit{Rate: 90_000_000, Period: 1e9, Algorithm: algorithms.FixedWindow}, Match: []string{"/api/v1"}},
	}
	m := mustNew(b, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: rules, Skip: []string{"GET /healthz"}})
	h := m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, c := range []struct{ name, path string }{{"three rules", "/api/v1"}, {"no rule", "/articles/how-to-limit"}, {"skipped", "/healthz"}} {
		b.Run(c.name, func(b *testing.B) {
			w, r := &discard{http.Header{}}, httptest.NewRequest(http.MethodGet, c.path, nil)
			for range 1100 { // past the first requests, which are watched
				h.ServeHTTP(w, r)
			}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				h.ServeHTTP(w, r)
			}
		})
	}
}
