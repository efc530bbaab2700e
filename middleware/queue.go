package middleware

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
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
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < delay {
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

// sleep reports whether the time was over before the context.
func sleep(ctx context.Context, d time.Duration) bool {
	if d == 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// tooLate turns an admission whose delay is too long into a denial: its results
// with a delay are denied until now would be their turn.
func (m *Middleware) tooLate(ctx context.Context, d algorithms.Decision) algorithms.Decision {
	m.giveBack(ctx, d)
	d.Allowed = false
	for i := range d.Results {
		r := &d.Results[i]
		if r.Delay > 0 {
			r.Allowed, r.RetryAfter, r.Delay = false, r.Delay, 0
		}
		r.Remaining += r.Charged
		r.Charged = 0
	}
	return d
}

// giveBack undoes the charges of a request that is not served after all. What
// cannot be given back stays charged, which errs towards denying.
func (m *Middleware) giveBack(ctx context.Context, d algorithms.Decision) {
	if c, ok := m.limiter.(algorithms.Counter); ok {
		_ = c.Settle(context.WithoutCancel(ctx), 0, d.Results...)
	}
}
