package middleware

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"sync"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/field"
)

// FromContext returns the decision on a request, for handlers, as it was made; false if no
// rule applied. If there are several middlewares around the handler, the decision has the
// results of all of them, those of the outermost first. [algorithms.Decision.Result]
// returns the result of one rule, from the innermost middleware that has the rule.
func FromContext(ctx context.Context) (algorithms.Decision, bool) {
	s := stateOf(ctx)
	if s == nil {
		return algorithms.Decision{}, false
	}
	d := s.decision
	for s = s.outer; s != nil; s = s.outer {
		outer := s.decision
		d.Allowed = d.Allowed && outer.Allowed
		d.Results = slices.Concat(outer.Results, d.Results)
	}
	return d, true
}

// ModifyResponse merges the rate limit headers of an upstream with those of the
// middlewares in front. It is for [net/http/httputil.ReverseProxy], which by itself
// sends both sets. ModifyResponse leaves the tighter set. An upstream's Retry-After
// stays as it is. Set ModifyResponse on every ReverseProxy behind a middleware:
// ReverseProxy clears the middlewares' headers after an informational response (1xx) of
// the upstream, and ModifyResponse sets them again.
//
// ModifyResponse needs the request's context, which ReverseProxy passes on. If no rule
// applied, it does nothing. A handler that responds by itself after a timeout, such as
// [http.TimeoutHandler], must not be between the middleware and the proxy.
func ModifyResponse(resp *http.Response) error {
	if resp.Request == nil {
		return nil
	}
	ctx := resp.Request.Context()
	s := stateOf(ctx)
	if s == nil {
		return nil
	}
	select {
	case <-ctx.Done(): // another handler may be writing the response
		return nil
	default:
	}
	for _, name := range field.Limits() {
		if lines := resp.Header[name]; len(lines) > 0 {
			s.header[name] = append(s.header[name], lines...)
			delete(resp.Header, name)
		}
	}
	s.write(s.header)
	return nil
}

var holdsNothing sync.Once // that Hold was called for no request is logged

// Hold keeps the request behind ctx from being over until release is called, even after
// the handler has returned. It is for connections that a handler hands on, and for work
// that goes on after a 202. Until release, the rules that limit requests in flight
// count the request, and [Add] and [Settle] may be called, even after ctx is cancelled.
//
// Call Hold before the handler returns: a Hold that comes later, or for a context that is of
// no request, holds nothing, which is logged. Call release in a defer: a request that is never
// released stays in flight until the process ends, and the metric ratelimit_in_flight
// counts it. release may be called several times, by any goroutine. With several Holds,
// the request is not over before the last of them is released.
func Hold(ctx context.Context) (release func()) {
	var kept []*requestState
	if !ofRequest(ctx) {
		holdsNothing.Do(func() {
			slog.Warn("ratelimit: Hold: this context is of no request, so nothing is held; pass on that of the request")
		})
	}
	for s := stateOf(ctx); s != nil; s = s.outer {
		if s.keep() {
			kept = append(kept, s)
		} else {
			s.set.hints.say("Hold: a handler had returned before, so nothing was held; call Hold in the handler, and pass release on")
		}
	}
	return sync.OnceFunc(func() {
		for _, s := range kept {
			s.letGo()
		}
	})
}

// keep adds to what a request waits for before it is over; false if it is over.
func (s *requestState) keep() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holds == 0 {
		return false
	}
	s.holds++
	s.kept = true
	return true
}

// letGo undoes a keep, and ends the request if it was the last.
func (s *requestState) letGo() {
	s.mu.Lock()
	s.holds--
	over := s.holds == 0
	s.mu.Unlock()
	if over {
		s.held.release()
	}
	s.settle(over)
	if !over || s.request == nil {
		return
	}
	if d := s.final(); !s.unpaid || isCharged(&d) {
		s.by.config.Settled(s.request, d)
	}
}
