package middleware

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/replay"
	"github.com/seed75154129/ratelimit/internal/wait"
)

// noWait is the longest wait of a request that cannot wait, since 0 means any.
const noWait = time.Microsecond

// enterQueue takes a place in the wait queue before the limiter is asked, so that a
// request without one takes no slot of a leaky_bucket. The limiter is told how long the
// request can wait, so that a request which cannot wait long enough takes none either.
func (e *evaluation) enterQueue(ctx context.Context, checks []algorithms.Check) {
	if e.handles && e.entered < len(e.queues) {
		e.ticket.leave()
		e.ticket, e.entered = e.m.queue.enter(e.request, e.queues), len(e.queues)
	}
	e.maxWait = e.m.maxWait(ctx, e.handles)
	if e.handles && e.ticket == nil {
		e.maxWait = noWait
	}
	for i := range checks {
		if checks[i].Limit.Algorithm == algorithms.LeakyBucket {
			checks[i].MaxDelay = e.maxWait
		}
	}
}

// maxWait returns how long a request can wait, so that it is served before its context's
// deadline and, in a handler, leaves a tenth of the server's WriteTimeout for the
// response. net/http counts that from when it had read the request's headers, a little
// before now. The decision itself may take the store's budget. 0 means any time.
func (m *Middleware) maxWait(ctx context.Context, handles bool) time.Duration {
	now := time.Now()
	until, bounded := ctx.Deadline()
	if server, ok := ctx.Value(http.ServerContextKey).(*http.Server); ok && handles && server.WriteTimeout > 0 {
		if end := now.Add(server.WriteTimeout - server.WriteTimeout/10); !bounded || end.Before(until) {
			until, bounded = end, true
		}
	}
	if !bounded {
		return 0
	}
	return max(until.Sub(now)-m.limiter.budget()-noWait, noWait)
}

// prepareWait gives a delayed request a place in the wait queue, if it has none, and
// denies it if it cannot wait for the delay.
//
// A request has no place yet if a limiter of the user's own delays a rule that is no
// leaky_bucket. Such a limiter may also ignore MaxDelay.
func (e *evaluation) prepareWait(delay time.Duration) {
	d := &e.decision
	if e.entered == 0 {
		var keys []queueKey
		for i := range d.Results {
			if r := &d.Results[i]; r.Delay > 0 && !r.Check.Shadow {
				keys = append(keys, queueKey{Rule: r.Check.Rule, Key: r.Check.Key})
			}
		}
		if e.ticket = e.m.queue.enter(e.request, keys); e.ticket == nil {
			e.maxWait = noWait
		}
	}
	if e.maxWait == 0 || delay <= e.maxWait {
		return
	}
	e.held.forget()
	e.held = nil
	e.m.limiter.refund(e.request.Context(), *d)
	d.Allowed = false
	for i := range d.Results {
		if r := &d.Results[i]; r.Delay > 0 {
			r.HasRoom, r.RetryAfter, r.Delay = false, r.Delay, 0
		}
	}
}

// await waits until the request's delay is over. If the request ends before, await
// refunds its slot and returns false.
func (e *evaluation) await(delay time.Duration) bool {
	r, begun := e.request, time.Now()
	e.m.delays.Observe(delay)
	e.ticket.wait()
	// A body that comes slowly does not keep the place.
	ended := time.AfterFunc(delay, e.ticket.leave)
	defer ended.Stop()
	if r.ProtoMajor == 1 && !hidesHangUp(r) {
		own := r.Body
		if body := replay.Of(r); body != nil {
			e.leaveBody(own)
			_, _ = body.Peek(maxReadBody) // the handler finds the error when it reads
		}
	}
	if wait.For(r.Context(), delay-time.Since(begun)) == nil && r.Context().Err() == nil {
		return true
	}
	e.refundSlot()
	return false
}

// refundSlot refunds the slot of a request that ended before its delay was over. The
// other rules stay charged. Otherwise a client that sends requests and hangs up would be
// limited by none of them. For the same reason, everything stays charged if several rules
// are a leaky_bucket: only the last slot of each can be refunded.
func (e *evaluation) refundSlot() {
	slot := -1
	for i := range e.decision.Results {
		if r := &e.decision.Results[i]; r.Check.Limit.Algorithm == algorithms.LeakyBucket && !r.Check.Shadow && r.Charged > 0 {
			if slot >= 0 {
				return
			}
			slot = i
		}
	}
	if slot >= 0 {
		e.decision.Results = slices.Clone(e.decision.Results) // Observe may have kept them
		r := &e.decision.Results[slot]
		units := r.Charged
		e.m.limiter.refund(e.request.Context(), algorithms.Decision{Results: e.decision.Results[slot : slot+1]})
		e.set.seriesOf(r.Check.Rule).refunded.Add(uint64(units - r.Charged))
	}
}
