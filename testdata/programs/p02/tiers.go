// 2. SaaS: tiers by API key, anonymous clients by IP, expensive endpoints in the
// same count, health checks excluded, behind Cloudflare and nginx.
package p02

import (
	"net/http"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// trusted is -trusted-proxies="10.0.0.0/8, 173.245.48.0/20, 103.21.244.0/22, …":
// nginx appends Cloudflare's address to X-Forwarded-For, Cloudflare the client's.
func limits(guard *failmode.Guard, trusted keyfunc.Proxies, planOf func(apiKey string) string) (*ratelimit.Middleware, error) {
	perMinute := func(n int64) algorithms.Limit {
		return algorithms.Limit{Rate: n, Period: time.Minute, Algorithm: algorithms.TokenBucket}
	}
	return ratelimit.New(ratelimit.Config{
		Limiter: guard,
		Skip:    []string{"GET /healthz", "GET /readyz"},
		SkipFor: func(r *http.Request) bool { return r.Method == http.MethodOptions },
		TierFor: func(r *http.Request) string { return planOf(r.Header.Get("X-API-Key")) }, // "" for none or unknown
		Rules: []ratelimit.Rule{{
			Name:  "flood", // an invented API key does not escape this one
			Key:   trusted.IP(),
			Limit: algorithms.PerMinute(2000),
			Fail:  failmode.Open,
		}, {
			Name:  "plan",
			Key:   keyfunc.First(keyfunc.APIKey("X-API-Key"), trusted.IP()),
			Limit: perMinute(60),
			Tiers: map[string]algorithms.Limit{"pro": perMinute(1000), "enterprise": perMinute(10000), "internal": ratelimit.Unlimited()},
			Costs: map[string]int64{"POST /reports": 10, "GET /export/{format}": 10},
		}},
	})
}
