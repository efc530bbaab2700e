package middleware_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// A rule with Sync is decided by copies, by few commands, in all its windows and tiers.
func TestSyncedRule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counting, registry := &spy{Limiter: new(store)}, prometheus.NewRegistry()
		rule := ratelimit.Rule{
			Name: "all", Key: keyfunc.Everyone, Sync: 100 * time.Millisecond,
			Limits: []algorithms.Limit{{Rate: 10_000, Period: time.Hour, Algorithm: algorithms.FixedWindow}, algorithms.PerMonth(100_000, "UTC")},
			Tiers:  map[string][]algorithms.Limit{"internal": ratelimit.Unlimited()},
			LimitsFor: func(r *http.Request) []algorithms.Limit {
				if r.Header.Get("Log") != "" {
					return []algorithms.Limit{{Rate: 1, Period: time.Hour, Algorithm: algorithms.SlidingLog}}
				}
				return nil
			},
		}
		g := guard(t, counting, 1)
		m := measured(t, registry, ratelimit.Config{Limiter: g, Rules: []ratelimit.Rule{rule}, TierFor: func(*http.Request) string { return "" }})
		h := m.Handler(ok)
		admitted := 0
		for range 15_000 {
			if serve(h, "GET /").Code == http.StatusNoContent {
				admitted++
			}
			time.Sleep(100 * time.Microsecond)
		}
		if admitted < 10_000 || admitted > 11_000 {
			t.Errorf("%d admitted", admitted)
		}
		if n := counting.takes.Load(); n > 500 {
			t.Errorf("%d questions", n)
		}
		if n := gather(t, registry)["decisions_total fixed_window allowed all sync"]; n < 9000 {
			t.Errorf("%v by copies", n)
		}
		if w := serve(h, "GET /", "Log", "yes"); w.Code != http.StatusTooManyRequests {
			t.Errorf("a limit that cannot be copied was used: %d", w.Code)
		}
	})
}
