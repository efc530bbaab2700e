package middleware

import (
	"context"
	"net/http"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/replay"
	"github.com/seed75154129/ratelimit/internal/wait"
)

// patienceOf is how long a request can wait for its turn at most, so that it comes
// before its context's deadline and, in a handler, leaves a tenth of the server's
// WriteTimeout for the response. net/http counts that from when it had read the
// request's headers, a little before now. The decision itself may take the
// store's budget. 0 means any time; no time is a microsecond.
func (m *Middleware) patienceOf(ctx context.Context, handles bool) time.Duration {
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
	return max(until.Sub(now)-m.budget-time.Microsecond, time.Microsecond)
}

// findPlace takes a place for a request that has to wait and has none yet: by a
// rule that is no queue, which a limiter of the user's own may delay, or because
// its queues were taken while it was believed to be over.
func (m *Middleware) findPlace(r *http.Request, v *verdict) {
	if v.turn != nil {
		return
	}
	var places []place
	for i := range v.decision.Results {
		if res := &v.decision.Results[i]; res.Delay > 0 && !res.Check.Shadow {
			places = append(places, place{rule: res.Check.Rule, key: res.Check.Key})
		}
	}
	if v.turn = m.room.enter(places, hidesHangUp(r)); !v.turn.has() {
		v.patience = time.Microsecond
	}
}

// tooLate turns an admission whose delay is too long into a denial: its results
// with a delay are denied until now would be their turn. It is for limiters that
// ignore MaxDelay.
func (m *Middleware) tooLate(ctx context.Context, d *algorithms.Decision) {
	_ = algorithms.Refund(ctx, m.limiter, *d) // what stays charged errs towards denying
	d.Allowed = false
	for i := range d.Results {
		if r := &d.Results[i]; r.Delay > 0 {
			r.HasRoom, r.RetryAfter, r.Delay = false, r.Delay, 0
		}
	}
}

// maxHeld is the largest body that is read while its request waits.
const maxHeld = 8 << 10

// hidesHangUp reports whether it will not be noticed that the client hangs up.
// net/http notices that once the body of an HTTP/1 request is read, so small
// bodies are read; larger ones, and those of unknown length, are left to the
// handler.
func hidesHangUp(r *http.Request) bool {
	return r.ProtoMajor == 1 && r.Body != nil && r.Body != http.NoBody && (r.ContentLength < 0 || r.ContentLength > maxHeld)
}

// await waits for the request's turn. It reports whether that came before the
// request ended.
func (m *Middleware) await(r *http.Request, t *turn, delay time.Duration) bool {
	begun := time.Now()
	m.delays.Observe(delay)
	t.wait()
	// A body that comes slowly does not keep the place.
	ended := time.AfterFunc(delay, t.leave)
	defer ended.Stop()
	if r.ProtoMajor == 1 && !hidesHangUp(r) {
		if body := replay.Of(r); body != nil {
			_, _ = body.Peek(maxHeld) // the handler finds the error when it reads
		}
	}
	err := wait.For(r.Context(), delay-time.Since(begun))
	return err == nil && r.Context().Err() == nil
}

// giveUp gives back the slot of a request that ended before its turn. The other
// rules stay charged: otherwise whoever sends and hangs up would be limited by
// none of them. So does everything where several rules are queues, since a slot
// is only given back while it is the last: one that is would free its client of
// paying for those that are not.
func (m *Middleware) giveUp(ctx context.Context, d algorithms.Decision) {
	slot := -1
	for i := range d.Results {
		if r := &d.Results[i]; r.Check.Limit.Algorithm == algorithms.LeakyBucket && !r.Check.Shadow && r.Charged > 0 {
			if slot >= 0 {
				return
			}
			slot = i
		}
	}
	if slot >= 0 {
		_ = algorithms.Refund(ctx, m.limiter, algorithms.Decision{Results: d.Results[slot : slot+1]})
	}
}
