package middleware

import (
	"errors"
	"net/http"
	"slices"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/headers"
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
		e.ticket.leave()
	}
	m.record(r, e.set, d, e.decidedAt)
	e.charged = m.config.Settled != nil && d.Allowed && isCharged(d)
	shown := e.set.shown(*d)
	m.config.Headers(w.Header(), shown)
	switch {
	case !d.Allowed && m.config.Denied == nil:
		headers.Deny(w, r, shown)
		if m.unseen {
			m.limiter.reuse(d)
		}
	case !d.Allowed:
		headers.SetRetryAfter(w.Header(), shown)
		e.set.hints.watchAnswer("Denied", w, func(w http.ResponseWriter) { m.config.Denied(w, e.withState(w), shown) })
	case e.refusal != nil:
		m.logRefusal(r.Context(), &e.set.watches[e.refuser], e.refusal)
		m.refuse(w, r, e.refusal)
	case delay > 0 && !e.await(delay):
		fail(w, http.StatusServiceUnavailable) // read only if it was not the client that left
	default:
		e.ticket.leave()
		return true
	}
	return false
}

func isCharged(d *algorithms.Decision) bool {
	return slices.ContainsFunc(d.Results, func(r algorithms.Result) bool { return r.Charged > 0 })
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
	e.state = s
	s.next = *e.request.WithContext(s)
	return &s.next
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
