package middleware

import (
	"net/http"
	"slices"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/onstatus"
)

// Handler wraps next. A request that no rule applies to passes unchanged. For other
// requests the middleware sets the response headers before it calls next. next gets the
// decision from [FromContext]. Handler panics if next is nil.
//
// A connection that next takes over is one request, whatever is sent on it. So put
// Handler inside a handler that serves HTTP/2 on such connections, such as
// golang.org/x/net/http2/h2c. If Handler is outside, a request in HTTP/2 with prior
// knowledge gets a 400.
//
// A request that a leaky_bucket delays waits here. It is denied at once if its delay ends
// after its context's deadline or leaves less than a tenth of the server's WriteTimeout, or
// if [Config].MaxWaiting is reached. If the client hangs up, its slot in the queue is
// refunded only if it is the last and there is one leaky_bucket. Other rules stay charged.
func (m *Middleware) Handler(next http.Handler) http.Handler {
	m.mustBeMade()
	if f, ok := next.(http.HandlerFunc); next == nil || ok && f == nil {
		panic("middleware: Handler: the next handler is nil")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The beginning of an HTTP/2 connection that net/http does not serve. Handlers such as
		// x/net's h2c take it over, and serve requests on it that the limiter does not see.
		if r.Method == "PRI" && r.ProtoMajor == 2 && r.URL.Path == "*" {
			m.rules.Load().hints.say("HTTP/2 without TLS that net/http does not serve is refused, since its requests would not be limited; " +
				"if a client is to use it, set http.Server.Protocols, or put the limiter inside the h2c handler: h2c.NewHandler(limit.Handler(mux), server)")
			fail(w, http.StatusBadRequest)
			return
		}
		if found := m.match(r); found.first < 0 {
			next.ServeHTTP(w, passed(r))
		} else {
			m.serve(w, r, next, &found)
		}
	})
}

// serve handles a request that rules match.
func (m *Middleware) serve(w http.ResponseWriter, r *http.Request, next http.Handler, found *match) {
	e := evaluation{m: m, match: *found, request: r, handles: true}
	defer e.end()
	body := r.Body
	err := e.decide()
	e.leaveBody(body)
	switch {
	case err != nil:
		m.refuse(w, e.request, err)
		return
	case e.refusal == nil && e.decision.Allowed && len(e.decision.Results) == 0: // no rule applies
		next.ServeHTTP(w, passed(e.request))
		return
	case !e.admit(w):
		return
	}
	r = e.withState(w)
	s, mayRefund := e.state, e.set.mayRefund(&e.decision)
	if mayRefund {
		w = onstatus.Wrap(w, func(status int) {
			s.answered(status)
			s.refundBy(status)
		})
	}
	next.ServeHTTP(w, r)
	if mayRefund && !s.hasStatus {
		s.answered(0)
	}
}

// Take charges the rules that match r and returns the decision. If no rule applies, the
// decision is allowed and has no results. Take is for work that is not an HTTP request,
// such as a message in a connection or a gRPC call. For a gRPC call, r is a POST. The
// caller must wait for the decision's Delay. A rule with in_flight counts the work
// until just after r's context ends, and its result has Charged 0: a Refund leaves the
// place. A context that never ends is an error. A rule with ChargeOn charges all of this
// work, as there is no response: see [algorithms.Refund].
//
// If a key refuses r, Take charges the other rules and returns an error that wraps the
// key's, such as a [*keyfunc.StatusError]. If one of the other rules denies, Take returns
// that decision and no error.
func (m *Middleware) Take(r *http.Request) (algorithms.Decision, error) {
	m.mustBeMade()
	e := evaluation{m: m, match: m.match(r), request: r}
	kept := false // not after a panic of Observe either
	defer func() {
		if !kept {
			e.held.release()
		}
	}()
	if err := e.decide(); err != nil {
		return algorithms.Decision{}, err
	}
	m.record(r, e.set, &e.decision, e.decidedAt)
	if e.refusal == nil {
		if err := e.held.untilDone(); err != nil {
			return algorithms.Decision{}, err
		}
		kept = true
		if e.held != nil {
			e.decision.Results = slices.Clone(e.decision.Results) // Observe may have kept them
			for i := range e.decision.Results {
				if r := &e.decision.Results[i]; isHeld(r.Check.Limit) {
					r.Charged = 0
				}
			}
		}
	}
	return e.outcome()
}

// Peek returns the decision that Take would make, and charges nothing. If the limiter
// cannot peek, the error wraps [errors.ErrUnsupported].
func (m *Middleware) Peek(r *http.Request) (algorithms.Decision, error) {
	m.mustBeMade()
	e := evaluation{m: m, match: m.match(r), request: r, peeks: true}
	if err := e.decide(); err != nil {
		return algorithms.Decision{}, err
	}
	return e.outcome()
}

// outcome is what Take and Peek return. A denial takes precedence over a refusal.
func (e *evaluation) outcome() (algorithms.Decision, error) {
	if e.refusal != nil && e.decision.Allowed {
		return algorithms.Decision{}, e.refusal
	}
	return e.decision, nil
}
