package docs

import (
	"context"
	"net/http"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

func callPartner(ctx context.Context, limiter algorithms.Limiter, client *http.Client, req *http.Request) (*http.Response, error) {
	partner := algorithms.Check{
		Rule:  "partner-api",
		Limit: algorithms.Limit{Rate: 10, Period: time.Second, Burst: 50, Algorithm: algorithms.LeakyBucket},
	}
	if _, err := algorithms.Wait(ctx, limiter, partner); err != nil {
		return nil, err // algorithms.ErrDenied, at once, if the call's turn comes after ctx's deadline
	}
	return client.Do(req)
}
