package middleware

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/headers"
	"github.com/seed75154129/ratelimit/internal/replay"
	"github.com/seed75154129/ratelimit/internal/wait"
	"github.com/seed75154129/ratelimit/internal/waitqueue"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// admit sets the response headers and waits until the request's delay is over. If the
// request is denied or refused, or ends before, admit responds and returns false.
func (e *evaluation) admit(w http.ResponseWriter) bool {
	m, r, d := e.m, e.request, &e.decision
	delay := d.Delay()
	if delay > 0 && e.refusal == nil {
		e.prepareWait(delay)
	}
	if delay == 0 || !d.Allowed || e.refusal != nil {
		e.ticket.Leave()
	}
	m.record(r, e.set, d)
	e.charged = m.config.Settled != nil && d.Allowed && isCharged(d)
	shown := e.set.shown(*d)
	m.config.Headers(w.Header(), shown)
	switch {
	case !d.Allowed && m.config.Denied == nil:
		headers.Deny(w, r, shown)
	case !d.Allowed:
		headers.SetRetryAfter(w.Header(), shown)
		e.set.hints.watchAnswer("Denied", w, func(w http.ResponseWriter) { m.config.Denied(w, e.withState(w), shown) })
	case e.refusal != nil:
		m.logRefusal(r.Context(), &e.set.watches[e.refuser], e.refusal)
		m.refuse(w, r, e.refusal)
	case delay > 0 && !e.await(delay):
		fail(w, http.StatusServiceUnavailable) // read only if it was not the client that left
	default:
		e.ticket.Leave()
		return true
	}
	return false
}

func isCharged(d *algorithms.Decision) bool {
	return slices.ContainsFunc(d.Results, func(r algorithms.Result) bool { return r.Charged > 0 })
}

// prepareWait gives a delayed request a place in the wait queue, if it has none, and
// denies it if it cannot wait for the delay.
//
// A request has no place yet if a limiter of the user's own delays a rule that is no
// leaky_bucket. Such a limiter may also ignore MaxDelay.
func (e *evaluation) prepareWait(delay time.Duration) {
	d := &e.decision
	if e.entered == 0 {
		var keys []waitqueue.Key
		for i := range d.Results {
			if r := &d.Results[i]; r.Delay > 0 && !r.Check.Shadow {
				keys = append(keys, waitqueue.Key{Rule: r.Check.Rule, Key: r.Check.Key})
			}
		}
		if e.ticket = e.m.queue.Enter(e.request, keys); e.ticket == nil {
			e.maxWait = noWait
		}
	}
	if e.maxWait == 0 || delay <= e.maxWait {
		return
	}
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
	e.ticket.Wait()
	// A body that comes slowly does not keep the place.
	ended := time.AfterFunc(delay, e.ticket.Leave)
	defer ended.Stop()
	if r.ProtoMajor == 1 && !waitqueue.HidesHangUp(r) {
		if body := replay.Of(r); body != nil {
			_, _ = body.Peek(waitqueue.MaxBody) // the handler finds the error when it reads
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

// withState returns the request for the next handler, with what was decided about it.
func (e *evaluation) withState(w http.ResponseWriter) *http.Request {
	ctx := e.request.Context()
	s := &requestState{Context: ctx, outer: stateOf(ctx), by: e.m, set: e.set, header: w.Header(),
		decision: e.decision, checks: e.checks, held: e.held, holds: 1, spent: e.spent}
	if hints := e.set.hints; s.outer != nil && hints.watching() {
		if rule := s.chargedBefore(); rule != "" {
			hints.say("a request was charged twice by rule %q, since it passed the same middleware twice, or two that have the rule and one limiter; "+
				"use Handler once, around the router or on the route, or name the rules differently", rule)
		}
	}
	if s.unpaid = !e.charged; e.charged || e.free != nil && e.m.config.Settled != nil {
		s.request = e.request
	}
	s.mayRefund = e.set.mayRefund(&e.decision)
	e.state = s
	return e.request.WithContext(s)
}

// refuse responds to a request whose key could not be resolved: it must not pass
// unlimited.
func (m *Middleware) refuse(w http.ResponseWriter, r *http.Request, err error) {
	status := http.StatusInternalServerError
	if refused, ok := required(err); ok {
		status = refused.Status
	} else {
		m.errors.Do(func() { m.config.Logger.Error("ratelimit: request refused", "error", err) })
	}
	if m.config.Refused == nil {
		fail(w, status)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	m.rules.Load().hints.watchAnswer("Refused", w, func(w http.ResponseWriter) { m.config.Refused(w, r, err) })
}

// required returns the refusal by a key that has a status of its own.
func required(err error) (*keyfunc.StatusError, bool) {
	refused, ok := errors.AsType[*keyfunc.StatusError](err)
	return refused, ok && refused.Status >= 400 && refused.Status <= 499
}

// fail responds with the status only. The next request may succeed.
func fail(w http.ResponseWriter, status int) {
	w.Header().Set("Cache-Control", "no-store")
	http.Error(w, http.StatusText(status), status)
}
