package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

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
	wrote  http.Header // the fields as they were last written, if it remembers them

	held    *held              // released when the request is over
	checks  []algorithms.Check // that were decided; nil if they are those of the results
	request *http.Request      // for Config.Settled; nil if it is not to be called

	closed atomic.Bool // the handler has returned: the response header is not its own any more

	mu        sync.Mutex
	decision  algorithms.Decision // its Results are never changed, only replaced
	used      *usage              // of the rules that were settled or added to; a list
	holds     int32               // by the handler and by Hold, that were not released; 0 if the request is over
	mayRefund bool                // a rule with ChargeOn has charged the request; never changes
	remembers bool                // fields that a handler has replaced are to be left alone; never changes
}

// A usage is what is known of a request's use of one rule after the decision.
type usage struct {
	next    *usage
	rule    string
	settled bool  // it cannot be settled again
	err     error // why the limiter could not settle it

	added   bool                // by Add; what follows is of Add
	shadow  bool                // nothing is taken beyond the first charge
	stopped bool                // the rule has no more
	sum     int64               // units that were added
	first   int64               // units of the request's charge
	charged int64               // units of all charges
	spent   int64               // of these, by charges that are not in more any longer
	more    []algorithms.Result // charges after the first: one result for each window in turn
	asking  chan struct{}       // holds an element while a goroutine takes more
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

// current returns the decision with all settlements.
func (s *requestState) current() algorithms.Decision {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.decision
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

// find returns the index of a rule's first result in the decision; -1 if there is none.
func (s *requestState) find(rule string) int {
	results := s.current().Results
	for i := range results {
		if results[i].Check.Rule == rule {
			return i
		}
	}
	return -1
}

// use returns the usage of a rule. It requires mu.
func (s *requestState) use(rule string) *usage {
	for u := s.used; u != nil; u = u.next {
		if u.rule == rule {
			return u
		}
	}
	s.used = &usage{next: s.used, rule: rule}
	return s.used
}

// held is what a request holds while it is in flight. Nil holds nothing.
type held struct {
	ctx     context.Context
	by      *Middleware
	charges []algorithms.Charge
	gauges  []*atomic.Int64 // of the charges' rules
	once    sync.Once

	room struct { // of the usual request, which holds one thing
		charges [1]algorithms.Charge
		gauges  [1]*atomic.Int64
	}
}

// release ends the request for its rules. With a Guard or a Memory it waits for nothing.
func (h *held) release() {
	if h == nil {
		return
	}
	h.once.Do(func() {
		for _, gauge := range h.gauges {
			gauge.Add(-1)
		}
		if _, err := h.by.limiter.Settle(context.WithoutCancel(h.ctx), h.charges...); err != nil {
			h.by.unsettled.Add(1)
			h.by.unrefunded.Do(func() { h.by.config.Logger.Error("ratelimit: request in flight not released", "error", err) })
		}
	})
}

// untilDone releases what a request that Take has charged holds when its context ends.
func (h *held) untilDone() error {
	switch {
	case h == nil:
		return nil
	case h.ctx.Done() == nil:
		h.release()
		return errors.New("middleware: take: the request's context never ends, and a rule limits requests in flight: Take holds them until it does; use context.WithCancel")
	}
	context.AfterFunc(h.ctx, h.release)
	return nil
}

// write sets the headers of all middlewares, the outermost first.
func (s *requestState) write(h http.Header) {
	if s != nil {
		s.outer.write(h)
		s.by.config.Headers(h, s.set.shown(s.current()))
	}
}

// rewriteHeaders writes the headers of all middlewares again. It does nothing if the
// request has ended, because another handler may be writing the response then. Before a
// status is written, it does nothing if a handler has replaced the headers.
func (s *requestState) rewriteHeaders(ctx context.Context) {
	for s.inner != nil {
		s = s.inner
	}
	if ctx.Err() != nil || s.remembers && !sameFields(s.wrote, s.header) {
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
		q.by.config.Headers(q.header, q.set.shown(q.current()))
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
	if s.remembers {
		s.wrote = limitFields(s.header)
	}
}

// limitFields returns the rate limit fields of a header, without Retry-After; nil if there
// are none.
func limitFields(h http.Header) (fields http.Header) {
	for _, name := range field.Limits() {
		if lines := h[name]; len(lines) > 0 {
			if fields == nil {
				fields = make(http.Header)
			}
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

// sameHeader reports whether two headers are those of one response.
func sameHeader(a, b http.Header) bool {
	return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
}
