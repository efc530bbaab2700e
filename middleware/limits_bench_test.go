package middleware_test

import (
	"context"
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

// What a request costs on its way through the middleware: one that three plain
// rules apply to, one that no rule in force matches, and those that are skipped.
func BenchmarkHandler(b *testing.B) {
	rules := []ratelimit.Rule{
		{Name: "a", Key: keyfunc.IP, Limit: algorithms.PerHour(90_000_000), Match: []string{"/api/"}},
		{Name: "b", Key: keyfunc.IP, Limit: algorithms.Limit{Rate: 90_000_000, Period: 1e9, Algorithm: algorithms.TokenBucket}, Match: []string{"GET /api/{x}"}},
		{Name: "c", Key: keyfunc.IP, Limit: algorithms.Limit{Rate: 90_000_000, Period: 1e9, Algorithm: algorithms.FixedWindow}, Match: []string{"/api/v1"}},
	}
	off := perHour("off", 1, "/off")
	off.Disabled = true
	m := mustNew(b, ratelimit.Config{
		Limiter: new(algorithms.Memory), Rules: append(rules, off), Skip: []string{"GET /healthz"},
		SkipFor: func(r *http.Request) bool { return r.Method == http.MethodOptions },
	})
	h := m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, c := range []struct{ name, method, path string }{
		{"three rules", "GET", "/api/v1"}, {"no rule", "GET", "/articles/how-to-limit"}, {"disabled", "GET", "/off"},
		{"skipped", "GET", "/healthz"}, {"skipped by SkipFor", "OPTIONS", "/api/v1"},
	} {
		b.Run(c.name, func(b *testing.B) {
			w, r := &discard{http.Header{}}, httptest.NewRequest(c.method, c.path, nil)
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

// A request that no rule applies to is not asked about, and allocates nothing.
func TestWhatNoRuleAppliesToIsFree(t *testing.T) {
	off, tiered := perHour("off", 1, "/off"), perHour("tiered", 1, "/tiered")
	off.Disabled, tiered.Tiers = true, map[string][]algorithms.Limit{"internal": ratelimit.Unlimited()}
	optional := ratelimit.Rule{Name: "optional", Match: []string{"/optional"}, Key: keyfunc.Optional(keyfunc.Header("User")), Limit: algorithms.PerHour(1)}
	limiter := &asked{t: t}
	m := mustNew(t, ratelimit.Config{
		Limiter: limiter, Rules: []ratelimit.Rule{perHour("a", 1, "/api/"), off, tiered, optional}, Skip: []string{"GET /api/healthz"},
		SkipFor: func(r *http.Request) bool { return r.Method == http.MethodOptions }, TierFor: func(*http.Request) string { return "internal" },
	})
	h := m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for line, free := range map[string]bool{
		"GET /articles": true, "GET /api/healthz": true, "OPTIONS /api/x": true, "GET /off": true, "GET /tiered": false, "GET /optional": false,
	} {
		w, r := &discard{http.Header{}}, request(line)
		for range 1100 { // past the first requests, which are watched
			h.ServeHTTP(w, r)
		}
		if n := testing.AllocsPerRun(100, func() { h.ServeHTTP(w, r) }); free && n > 0 {
			t.Errorf("%s: %v allocations", line, n)
		}
		if len(w.header) > 0 {
			t.Errorf("%s: %v", line, w.header)
		}
	}
}

// An asked is a limiter that nobody should ask.
type asked struct {
	algorithms.Memory
	t *testing.T
}

func (a *asked) Take(context.Context, ...algorithms.Check) (algorithms.Decision, error) {
	a.t.Helper()
	a.t.Error("the limiter is asked")
	return algorithms.Decision{Allowed: true}, nil
}
