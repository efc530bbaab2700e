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

// A rule with Lease is served from blocks, and its limit holds to the unit.
func TestLeasedRule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counting, registry := &spy{Limiter: new(store)}, prometheus.NewRegistry()
		rule := ratelimit.Rule{
			Name: "all", Key: keyfunc.Everyone, Lease: true,
			Limit: algorithms.Limit{Rate: 10_000, Period: time.Hour, Algorithm: algorithms.FixedWindow},
			Tiers: map[string][]algorithms.Limit{"internal": ratelimit.Unlimited()},
			LimitsFor: func(r *http.Request) []algorithms.Limit {
				if r.Header.Get("Bucket") != "" {
					return []algorithms.Limit{{Rate: 1, Period: time.Hour, Burst: 1}} // grants no blocks
				}
				return nil
			},
		}
		g := guard(t, counting, 1)
		m := measured(t, registry, ratelimit.Config{Limiter: g, Rules: []ratelimit.Rule{rule}, TierFor: func(*http.Request) string { return "" }})
		h := m.Handler(ok)
		admitted := 0
		for range 12_000 {
			if serve(h, "GET /").Code == http.StatusNoContent {
				admitted++
			}
			time.Sleep(100 * time.Microsecond)
		}
		if admitted != 10_000 {
			t.Errorf("%d admitted", admitted)
		}
		if n := counting.takes.Load(); n > 500 {
			t.Errorf("%d questions", n)
		}
		if leased := gather(t, registry)["decisions_total fixed_window allowed all lease"]; leased < 9000 {
			t.Errorf("%v from blocks", leased)
		}
		if w := serve(h, "GET /", "Bucket", "yes"); w.Code != http.StatusTooManyRequests {
			t.Errorf("a limit that grants no blocks was used: %d", w.Code)
		}
		_ = g.Close()
	})
}
