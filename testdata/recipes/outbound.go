package recipes

import (
	"context"
	"net/http"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/headers"
)

// outbound sends each host 9 requests a second, from all processes together.
// The host allows 10, but requests arrive unevenly.
func outbound(limiter algorithms.Limiter) *http.Client {
	limit := algorithms.Limit{Rate: 9, Period: time.Second, Burst: 100, Algorithm: algorithms.LeakyBucket} // 100 can queue; others wait for a place
	return &http.Client{Timeout: time.Minute, Transport: &headers.Transport{
		Limiter: limiter,
		Checks: func(r *http.Request) []algorithms.Check {
			return []algorithms.Check{{Rule: "outbound", Key: r.URL.Host, Limit: limit}}
		},
	}}
}

func worker(ctx context.Context, limiter algorithms.Limiter, jobs <-chan string, send func(context.Context, string) (units int64, err error)) error {
	check := algorithms.Check{Rule: "mail", Key: "provider", Cost: 10, Limit: algorithms.Limit{Rate: 100, Period: time.Second, Algorithm: algorithms.TokenBucket}}
	for job := range jobs {
		d, err := algorithms.Wait(ctx, limiter, check)
		if err != nil {
			return err
		}
		units, err := send(ctx, job)
		if err != nil {
			_ = algorithms.Refund(ctx, limiter, d) // nothing was sent
			continue
		}
		_, _ = limiter.Settle(ctx, algorithms.Charge{Result: d.Results[0], Cost: units}) // units really used
	}
	return nil
}

// mails sends 10 to 1000 mails at once: as many as the tenant's day and the provider's minute still allow.
func mails(ctx context.Context, limiter algorithms.Limiter, tenant string, send func(most int64) (sent int64)) error {
	d, err := algorithms.Wait(ctx, limiter,
		algorithms.Check{Rule: "mails", Key: tenant, Limit: algorithms.PerDay(50_000, "UTC"), Cost: 1000, AtLeast: 10},
		algorithms.Check{Rule: "provider", Limit: algorithms.PerMinute(5000), Cost: 1000, AtLeast: 10})
	if err != nil {
		return err // algorithms.ErrDenied if 10 fit only after ctx's deadline
	}
	sent := send(d.Results[0].Charged)
	charges := make([]algorithms.Charge, len(d.Results))
	for i, result := range d.Results {
		charges[i] = algorithms.Charge{Result: result, Cost: sent}
	}
	_, err = limiter.Settle(ctx, charges...)
	return err
}
