package recipes

import (
	"context"
	"net/http"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/headers"
)

// A paced RoundTripper sends 10 requests a second to each host, from all processes
// together.
type paced struct {
	base    http.RoundTripper
	limiter algorithms.Limiter
}

func (p paced) RoundTrip(r *http.Request) (*http.Response, error) {
	check := algorithms.Check{Rule: "outbound", Key: r.URL.Host, Limit: algorithms.Limit{Rate: 10, Period: time.Second, Burst: 100, Algorithm: algorithms.LeakyBucket}}
	if _, err := algorithms.Wait(r.Context(), p.limiter, check); err != nil {
		return nil, err // algorithms.ErrDenied: not before the context's deadline
	}
	return p.base.RoundTrip(r)
}

func outbound(limiter algorithms.Limiter) *http.Client {
	return &http.Client{
		Timeout:   time.Minute,
		Transport: &headers.Transport{Base: paced{http.DefaultTransport, limiter}}, // which also obeys a 429, and then waits for a turn again
	}
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
			_ = algorithms.GiveBack(ctx, limiter, d) // nothing was sent
			continue
		}
		_, _ = limiter.Settle(ctx, algorithms.Charge{Result: d.Results[0], Cost: units}) // what it really took
	}
	return nil
}
