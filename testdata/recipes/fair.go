package recipes

import (
	"math"
	"net/http"
	"sync/atomic"

	"github.com/seed75154129/ratelimit"
	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// fairShares lets a tenant use nearly the whole service while other tenants are idle, and
// only its share when the service is full.
func fairShares(limiter algorithms.Limiter, tenant keyfunc.Key) (*ratelimit.Middleware, error) {
	var used atomic.Uint64 // used part, 0 to 1, as float64 bits
	idle, full := ratelimit.PerSecond(900), ratelimit.PerSecond(100)
	return ratelimit.New(ratelimit.Config{
		Limiter: limiter,
		Observe: func(_ *http.Request, d ratelimit.Decision) {
			if all, ok := d.Result("all"); ok && all.Err == nil && all.Source != algorithms.SourceNone {
				used.Store(math.Float64bits(1 - float64(all.Remaining)/float64(all.Check.Limit.Quota())))
			}
		},
		Rules: []ratelimit.Rule{
			{Name: "all", Key: keyfunc.Everyone, Limit: ratelimit.PerSecond(1000), Hidden: true},
			{Name: "tenant", Key: tenant, Limit: full, LimitsFor: func(*http.Request) []ratelimit.Limit {
				if math.Float64frombits(used.Load()) < 0.8 {
					return []ratelimit.Limit{idle} // idle and full share one count
				}
				return nil // full
			}},
		},
	})
}
