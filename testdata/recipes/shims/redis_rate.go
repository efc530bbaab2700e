package shims

import (
	"context"

	"github.com/go-redis/redis_rate/v10"

	"github.com/seed75154129/ratelimit/algorithms"
)

// AllowN decides as the method of redis_rate's Limiter does. If n is 0, it charges nothing.
func AllowN(ctx context.Context, limiter algorithms.Limiter, key string, limit redis_rate.Limit, n int) (*redis_rate.Result, error) {
	check := algorithms.Check{Rule: "redis_rate", Key: key, Cost: int64(n), Limit: algorithms.Limit{
		Rate: int64(limit.Rate), Period: limit.Period, Burst: int64(limit.Burst), Algorithm: algorithms.GCRA,
	}}
	decide := limiter.Take
	if n == 0 {
		decide = limiter.Peek
	}
	d, err := decide(ctx, check)
	if err != nil {
		return nil, err
	}
	result := &redis_rate.Result{Limit: limit, Remaining: int(d.Results[0].Remaining), RetryAfter: -1, ResetAfter: d.Results[0].ResetAfter}
	switch {
	case n == 0:
	case d.Allowed:
		result.Allowed = n
	default:
		result.RetryAfter = d.RetryAfter() // algorithms.Never if n is more than the burst
	}
	return result, nil
}
