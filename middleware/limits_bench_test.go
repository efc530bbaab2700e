package middleware_test

import (
	"context"
	"net/http"
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

// A request that no rule applies to is not asked about, and allocates nothing.
func TestWhatNoRuleAppliesToIsFree(t *testing.T) {
	tiered := perHour("tiered", 1, "/tiered")
	tiered.Tiers = map[string][]algorithms.Limit{"internal": ratelimit.Unlimited()}
	tiered.CostFor = func(*http.Request) int64 { t.Error("the cost is asked for"); return 1 }
	optional := ratelimit.Rule{Name: "optional", CostFor: tiered.CostFor, Match: []string{"/optional"}, Key: keyfunc.Optional(keyfunc.Header("User")), Limit: algorithms.PerHour(1)}
	limiter := &spy{Limiter: new(algorithms.Memory)}
	m := mustNew(t, ratelimit.Config{
		Limiter: limiter, Rules: []ratelimit.Rule{perHour("a", 1, "/api/"), tiered, optional}, Skip: []string{"GET /api/healthz"},
		SkipFor: func(r *http.Request) bool {
			if r.URL.Path == "/api/healthz" {
				t.Error("SkipFor is asked after Skip has said it")
			}
			return r.Method == http.MethodOptions
		},
		TierFor: func(*http.Request) string { return "internal" },
	})
	h := m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for line, free := range map[string]bool{
		"GET /articles": true, "GET /api/healthz": true, "OPTIONS /api/x": true, "GET /tiered": false, "GET /optional": false,
	} {
		w, r := &discard{http.Header{}}, request(line)
		r = r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, new(http.Server))) // as net/http does
		for range 1100 {                                                                           // past the first requests, which are watched
			h.ServeHTTP(w, r)
		}
		if n := testing.AllocsPerRun(100, func() { h.ServeHTTP(w, r) }); free && n > 0 {
			t.Errorf("%s: %v allocations", line, n)
		}
		if len(w.header) > 0 {
			t.Errorf("%s: %v", line, w.header)
		}
	}
	if n := limiter.takes.Load(); n > 0 {
		t.Errorf("the limiter is asked %d times", n)
	}
}
