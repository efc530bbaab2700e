package middleware

import (
	"errors"
	"net/http"

	"github.com/seed75154129/ratelimit/headers"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// answer sets the response headers and waits until it is the request's turn. It
// returns the request for the next handler; false if it has responded to it,
// because it is denied or refused, or ended before its turn.
func (m *Middleware) answer(w http.ResponseWriter, r *http.Request, v *verdict) (*http.Request, bool) {
	d := &v.decision
	delay := d.Delay()
	if delay > 0 && v.refusal == nil {
		m.findPlace(r, v)
		if v.patience > 0 && delay > v.patience {
			m.tooLate(r.Context(), d)
		}
	}
	if delay == 0 || !d.Allowed || v.refusal != nil {
		v.turn.leave()
	}
	m.see(r, v)
	v.found = foundIn(w.Header())
	m.headers(w.Header(), v.set.shown(*d))
	switch {
	case !d.Allowed:
		m.deny(w, r, v)
	case v.refusal != nil:
		m.refuse(w, r, v.refusal)
	case delay > 0 && !m.await(r, v, delay):
		m.giveUp(r.Context(), *d)
		fail(w, http.StatusServiceUnavailable) // read only if it was not the client that left
	default:
		v.turn.leave()
		return m.pass(w, r, v), true
	}
	return nil, false
}

func (m *Middleware) deny(w http.ResponseWriter, r *http.Request, v *verdict) {
	shown := v.set.shown(v.decision)
	if m.denied == nil {
		headers.Deny(w, r, shown)
		return
	}
	headers.SetRetryAfter(w.Header(), shown)
	m.denied(w, m.pass(w, r, v), shown)
}

// refuse answers a request whose key could not be resolved: it must not pass
// unlimited.
func (m *Middleware) refuse(w http.ResponseWriter, r *http.Request, err error) {
	status := http.StatusInternalServerError
	if required, ok := errors.AsType[*keyfunc.StatusError](err); ok && required.Status >= 400 && required.Status <= 499 {
		status = required.Status
	} else {
		m.errors.Do(func() { m.logger.Error("ratelimit: request refused", "error", err) })
	}
	if m.refused == nil {
		fail(w, status)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	m.refused(w, r, err)
}

// fail tells the client the status and no more; the next request may fare better.
func fail(w http.ResponseWriter, status int) {
	w.Header().Set("Cache-Control", "no-store")
	http.Error(w, http.StatusText(status), status)
}
