package middleware

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/wait"
)

// A queue is the requests that wait for their turn in a leaky_bucket.
type queue struct {
	most    int64
	waiting atomic.Int64
	metrics *metrics
}

// enter reports whether a request may wait: whether there is room for it, and
// whether its turn comes before its deadline. If so, leave must follow.
func (q *queue) enter(ctx context.Context, delay time.Duration) bool {
	if !wait.InTime(ctx, delay) {
		return false
	}
	if q.waiting.Add(1) > q.most {
		q.waiting.Add(-1)
		return false
	}
	q.metrics.queued(delay)
	return true
}

func (q *queue) leave() { q.waiting.Add(-1) }

// tooLate turns an admission whose delay is too long into a denial: its results
// with a delay are denied until now would be their turn.
func (m *Middleware) tooLate(ctx context.Context, d algorithms.Decision) algorithms.Decision {
	_ = algorithms.GiveBack(ctx, m.limiter, d) // what stays charged errs towards denying
	d.Allowed = false
	for i := range d.Results {
		if r := &d.Results[i]; r.Delay > 0 {
			r.Allowed, r.RetryAfter, r.Delay = false, r.Delay, 0
		}
	}
	return d
}
