// Package recipes has the code that docs/recipes.md shows. Its tests run it.
package recipes

import (
	"context"
	"net/http"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

func plans(limiter algorithms.Limiter, tenant keyfunc.Key, planOf func(context.Context) string) (*ratelimit.Middleware, error) {
	return ratelimit.New(ratelimit.Config{
		Limiter: limiter,
		TierFor: func(r *http.Request) string { return planOf(r.Context()) }, // from the session, never from a header
		Rules: []ratelimit.Rule{
			{Name: "per-ip", Key: keyfunc.IP, Limit: algorithms.PerMinute(600)}, // also clients that are not logged in
			{
				Name: "plan", Key: keyfunc.Optional(tenant),
				Limit: algorithms.PerMinute(60), // free, and any plan that is not listed
				Tiers: map[string][]algorithms.Limit{"pro": {algorithms.PerMinute(1000)}, "internal": ratelimit.Unlimited()},
			},
		},
	})
}
