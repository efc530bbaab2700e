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
			return []algorithms.Check{{Rule: "outbound", Key: headers.Host(r), Limit: limit}}
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
