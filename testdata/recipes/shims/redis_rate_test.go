package shims_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-redis/redis_rate/v10"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/algorithms/limitertest"

	"recipes/shims"
)

// An allowN is a call of AllowN, and what redis_rate returns.
type allowN struct {
	n, allowed, remaining int
	retry, reset          time.Duration
	ours                  *redis_rate.Result // Remaining and RetryAfter here, if they differ
}

// redis_rate's own tests say what AllowN returns. The shim returns it too, but where a row
// says otherwise: it tells what is left after a denial, and that n is above the burst.
func TestRedisRate(t *testing.T) {
	const tenth = 100 * time.Millisecond
	for name, calls := range map[string][]allowN{
		"units":    {{1, 1, 9, -1, tenth, nil}, {2, 2, 7, -1, 3 * tenth, nil}, {7, 7, 0, -1, 10 * tenth, nil}},
		"n is 0":   {{0, 0, 10, -1, 0, nil}, {1, 1, 9, -1, tenth, nil}, {0, 0, 9, -1, tenth, nil}},
		"a denial": {{10, 10, 0, -1, 10 * tenth, nil}, {3, 0, 0, 3 * tenth, 10 * tenth, nil}},
		"a denial with some left": {{8, 8, 2, -1, 8 * tenth, nil}, {5, 0, 0, 3 * tenth, 8 * tenth,
			&redis_rate.Result{Remaining: 2, RetryAfter: 3 * tenth}}},
		"more than the burst": {{10, 10, 0, -1, 10 * tenth, nil}, {1000, 0, 0, 1000 * tenth, 10 * tenth,
			&redis_rate.Result{RetryAfter: algorithms.Never}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			client := limitertest.Redis(t)
			rater, ours := redis_rate.NewLimiter(client), &algorithms.Redis{Client: client, Namespace: "app"}
			limit := redis_rate.PerSecond(10)
			for i, c := range calls {
				want := redis_rate.Result{Limit: limit, Allowed: c.allowed, Remaining: c.remaining, RetryAfter: c.retry, ResetAfter: c.reset}
				got, err := rater.AllowN(t.Context(), "alice", limit, c.n)
				// It counts in doubles, which lose a unit here and there.
				if err != nil || got.Allowed != c.allowed || got.Remaining > c.remaining || got.Remaining < c.remaining-1 ||
					(got.RetryAfter-c.retry).Abs() > time.Millisecond || (got.ResetAfter-c.reset).Abs() > time.Millisecond {
					t.Errorf("%s, redis_rate, call %d: %+v, %v", name, i, got, err)
				}
				if c.ours != nil {
					want.Remaining, want.RetryAfter = c.ours.Remaining, c.ours.RetryAfter
				}
				if got, err := shims.AllowN(t.Context(), ours, "alice", limit, c.n); err != nil || *got != want {
					t.Errorf("%s, here, call %d: %+v, %v", name, i, got, err)
				}
			}
		})
	}
}
