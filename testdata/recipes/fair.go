package recipes

import (
	"math"
	"net/http"
	"sync/atomic"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// fairShares lets a tenant use nearly the whole service while other tenants are idle, and
// only its share when the service is full.
func fairShares(limiter algorithms.Limiter, tenant keyfunc.Key) (*ratelimit.Middleware, error) {
	var used atomic.Uint64 // used part, 0 to 1, as float64 bits
	idle, full := algorithms.PerSecond(900), algorithms.PerSecond(100)
	return ratelimit.New(ratelimit.Config{
		Limiter: limiter,
		Observe: func(_ *http.Request, d algorithms.Decision) {
			if all, ok := d.Result("all"); ok && all.Err == nil && all.Source != algorithms.SourceNone {
				used.Store(math.Float64bits(1 - float64(all.Remaining)/float64(all.Check.Limit.Quota())))
			}
		},
		Rules: []ratelimit.Rule{
			{Name: "all", Key: keyfunc.Everyone, Limit: algorithms.PerSecond(1000), Hidden: true},
			{Name: "tenant", Key: tenant, Limit: full, LimitsFor: func(*http.Request) []algorithms.Limit {
				if math.Float64frombits(used.Load()) < 0.8 {
					return []algorithms.Limit{idle} // idle and full share one count
				}
				return nil // full
			}},
		},
	})
}
