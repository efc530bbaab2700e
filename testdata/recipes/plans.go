// Package recipes has the code that docs/recipes.md and docs/plans.md show or name. Its tests run
// it.
package recipes

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/seed75154129/ratelimit"
	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/headers"
)

func plans(limiter algorithms.Limiter, rules []ratelimit.Rule, planOf func(context.Context) string) (*ratelimit.Middleware, error) {
	return ratelimit.New(ratelimit.Config{
		Limiter: limiter, Rules: rules, Headers: headers.IETFDraft11, Denied: deny,
		TierFor: func(r *http.Request) string { return planOf(r.Context()) }, // from the session, never from a header
	})
}

// deny answers 402 if a plan has too little left.
func deny(w http.ResponseWriter, r *http.Request, d ratelimit.Decision) {
	for _, result := range d.Results {
		counted := result.Err == nil && result.Source != algorithms.SourceFallback // without Redis, each process has only a part of the plan
		if result.Denies() && result.Check.Limit.Calendar != "" && counted && result.BannedFor == 0 {
			w.Header().Set("Cache-Control", "no-store")
			w.Header().Del("Retry-After") // clients should not retry
			http.Error(w, fmt.Sprint("this needs more than your plan has left until ", result.At.Add(result.ResetAfter).UTC().Format(time.RFC3339)), http.StatusPaymentRequired)
			return
		}
	}
	headers.Deny(w, r, d)
}

// bill writes each request's final cost. write must ignore an id that it has stored.
func bill(rule string, id func(*http.Request) string, write func(id, tenant string, units int64)) func(*http.Request, ratelimit.Decision) {
	return func(r *http.Request, d ratelimit.Decision) { // for Config.Settled
		if result, ok := d.Result(rule); ok && result.Charged > 0 {
			write(id(r), result.Check.Key, result.Charged)
		}
	}
}

// warn calls mail when a tenant has used 80 % of a plan, and again at 100 %. mail must
// not block, and must ignore a percentage that it has sent for the same month.
func warn(mail func(tenant string, percent int64, renewed time.Time)) func(*http.Request, ratelimit.Decision) {
	return func(_ *http.Request, d ratelimit.Decision) { // for Config.Observe and Config.Settled
		for _, result := range d.Results {
			if result.Check.Limit.Calendar == "" || result.Source == algorithms.SourceFallback { // that is a part of the plan
				continue
			}
			quota := result.Check.Limit.Quota()
			used := quota - result.Remaining
			for _, percent := range []int64{80, 100} {
				if at := quota * percent / 100; used-result.Charged < at && at <= used {
					mail(result.Check.Key, percent, result.At.Add(result.ResetAfter))
				}
			}
		}
	}
}
