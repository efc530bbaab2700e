package middleware

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"sync"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/field"
)

// A requestState holds what one middleware decided about a request. It is the context of
// the request that the next handler gets.
type requestState struct {
	context.Context
	outer  *requestState // of the middleware in front; nil if there is none
	inner  *requestState // of the middleware behind, if it writes the same header; else nil
	by     *Middleware
	set    *ruleset
	header http.Header // of the response
	before http.Header // rate limit fields that the header had already; nil if none
	wrote  http.Header // the fields as they were last written; nil if they need not be known

	held    *held              // released when the request is over
	checks  []algorithms.Check // that were decided; nil if they are those of the results
	request *http.Request      // for Config.Settled; nil if it is not to be called

	mu        sync.Mutex
	decision  algorithms.Decision // its Results are never changed, only replaced
	used      *usage              // of the rules that were settled or added to; a list
	holds     int32               // calls of Hold that were not released
	closed    bool                // the handler has returned
	mayRefund bool                // a rule with ChargeOn has charged the request; never changes
}

type stateKey struct{}

// Value implements [context.Context].
func (s *requestState) Value(key any) any {
	if key == (stateKey{}) {
		return s
	}
	return s.Context.Value(key)
}

// String implements [fmt.Stringer], as other contexts do: printing a request must not
// read what handlers may be changing.
func (s *requestState) String() string {
	return fmt.Sprintf("%v.WithValue(ratelimit.decision)", s.Context)
}

// stateOf returns the state of the innermost middleware; nil if no rule applied.
func stateOf(ctx context.Context) *requestState {
	s, _ := ctx.Value(stateKey{}).(*requestState)
	return s
}

// sameHeader reports whether two headers are those of one response.
func sameHeader(a, b http.Header) bool {
	return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
}

// current returns the decision with all settlements.
func (s *requestState) current() algorithms.Decision {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.decision
}

// close ends the request, unless Hold was called.
func (s *requestState) close() {
	s.mu.Lock()
	s.closed = true
	over := s.holds == 0
	s.mu.Unlock()
	if over {
		s.finish()
	}
}

// isClosed reports whether the handler has returned: the response header is not its own
// any more.
func (s *requestState) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// passed reports whether a middleware has decided about the request already.
func (s *requestState) passed(m *Middleware) bool {
	for ; s != nil; s = s.outer {
		if s.by == m {
			return true
		}
	}
	return false
}

// FromContext returns the decision on a request, for handlers; false if no rule
// applied. If there are several middlewares around the handler, the decision has the
// results of all of them, those of the outermost first. [algorithms.Decision.Result]
// returns the result of one rule, from the innermost middleware that has it.
func FromContext(ctx context.Context) (algorithms.Decision, bool) {
	s := stateOf(ctx)
	if s == nil {
		return algorithms.Decision{}, false
	}
	d := s.current()
	for s = s.outer; s != nil; s = s.outer {
		outer := s.current()
		d.Allowed = d.Allowed && outer.Allowed
		d.Results = slices.Concat(outer.Results, d.Results)
	}
	return d, true
}

// ModifyResponse merges the rate limit headers of an upstream with those of the
// middlewares in front. It is for [net/http/httputil.ReverseProxy], which would
// otherwise send both sets. The client gets the tighter set. An upstream's Retry-After
// stays as it is. Set ModifyResponse on every ReverseProxy behind a middleware:
// ReverseProxy clears the middlewares' fields after an informational response (1xx) of
// the upstream, and ModifyResponse sets them again.
//
// It needs the request's context, which ReverseProxy passes on. If no rule applied, it
// does nothing. A handler that responds by itself after a timeout, such as
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
	first := s.outermost()
	for _, name := range field.Limits() {
		if lines := resp.Header[name]; len(lines) > 0 {
			s.header[name] = append(s.header[name], lines...)
			if first.before == nil {
				first.before = make(http.Header)
			}
			first.before[name] = append(first.before[name], lines...)
			delete(resp.Header, name)
		}
	}
	s.write(s.header)
	s.rememberFields()
	return nil
}

// write sets the headers of all middlewares, the outermost first.
func (s *requestState) write(h http.Header) {
	if s != nil {
		s.outer.write(h)
		s.by.headers(h, s.set.shown(s.current()))
	}
}

// rewriteHeaders writes the headers of all middlewares again. It does nothing if the
// request has ended, because another handler may be writing the response then. Before a
// status is written, it does nothing if a handler has replaced the headers.
func (s *requestState) rewriteHeaders(ctx context.Context) {
	for s.inner != nil {
		s = s.inner
	}
	if ctx.Err() != nil || s.wrote != nil && !sameFields(s.wrote, s.header) {
		return
	}
	first := s.outermost()
	for _, name := range field.Limits() {
		delete(s.header, name)
		if lines := first.before[name]; len(lines) > 0 {
			s.header[name] = slices.Clone(lines)
		}
	}
	for q := first; q != nil; q = q.inner {
		q.by.headers(q.header, q.set.shown(q.current()))
	}
	s.rememberFields()
}

// outermost returns the state of the outermost middleware that writes the same header.
func (s *requestState) outermost() *requestState {
	for s.outer != nil && s.outer.inner == s {
		s = s.outer
	}
	return s
}

// rememberFields records the fields as they are now, if rewriteHeaders compares them.
func (s *requestState) rememberFields() {
	if s.wrote != nil {
		s.wrote = fieldsOf(s.header)
	}
}

// limitFields returns the rate limit fields of a header; nil if there are none.
func limitFields(h http.Header) http.Header {
	if len(h) == 0 {
		return nil
	}
	for _, name := range field.Limits() {
		if len(h[name]) > 0 {
			return fieldsOf(h)
		}
	}
	return nil
}

// fieldsOf returns the rate limit fields of a header, without Retry-After; never nil.
func fieldsOf(h http.Header) http.Header {
	fields := make(http.Header)
	for _, name := range field.Limits() {
		if lines := h[name]; len(lines) > 0 {
			fields[name] = slices.Clone(lines)
		}
	}
	return fields
}

func sameFields(fields, h http.Header) bool {
	for _, name := range field.Limits() {
		if !slices.Equal(fields[name], h[name]) {
			return false
		}
	}
	return true
}
