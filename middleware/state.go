package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/naming"
)

// A requestState holds what one middleware decided about a request. It is the context of
// the request that the next handler gets.
type requestState struct {
	context.Context
	outer  *requestState // of the middleware in front; nil if there is none
	by     *Middleware
	set    *ruleset
	header http.Header // of the response, for ModifyResponse

	held    *held               // released when the request is over
	checks  *[]algorithms.Check // that were decided; nil if they are those of the results
	request *http.Request       // for Config.Settled; nil if it is not to be called

	decision algorithms.Decision // never changes
	spent    time.Duration       // waiting for decisions, in all middlewares so far

	mu       sync.Mutex
	calls    chan struct{} // has an element while the limiter is called for an account; nil without accounts
	accounts *account      // of the rules that were settled or added to; a list
	holds    int32         // by the handler and by Hold, that were not released; 0 if the request is over
	kept     bool          // Hold was called

	unpaid    bool // only Add may have charged it
	hasStatus bool // the handler has written one; known only if a rule with ChargeOn has charged the request

	next http.Request // what the next handler gets; here, so that both are one allocation
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

// chargedBefore returns a rule by which a middleware in front, with the same limiter, has
// charged the request already; "" if there is none.
func (s *requestState) chargedBefore() string {
	for o := s.outer; o != nil; o = o.outer {
		mine, its := s.by.limiter.Limiter, o.by.limiter.Limiter
		if !reflect.ValueOf(mine).Comparable() || mine != its {
			continue
		}
		for _, before := range o.decision.Results {
			for _, r := range s.decision.Results {
				if r.Charged > 0 && before.Charged > 0 && naming.Of(&r.Check) == naming.Of(&before.Check) {
					return r.Check.Rule
				}
			}
		}
	}
	return ""
}

// answered tells the hints which status a request has that rules with ChargeOn have
// charged; 0 if none was written.
func (s *requestState) answered(status int) {
	s.hasStatus = true
	if s.set.hints.listening.Load() == 0 {
		return
	}
	last := ""
	for _, r := range s.decision.Results {
		if at, ok := s.set.find(r.Check.Rule, 0); ok && r.Charged > 0 && r.Check.Rule != last && s.set.rules[at].source.ChargeOn != nil {
			last = r.Check.Rule
			s.set.hints.answered(at, &s.set.rules[at], status)
		}
	}
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
		h.forget()
		if _, err := h.by.limiter.Settle(h.ctx, h.charges...); err != nil {
			h.by.unsettled.Add(1)
			h.by.unsettledLog.Do(func() { h.by.config.Logger.Error("ratelimit: request in flight not released", "error", err) })
		}
	})
}

// forget no longer counts the request as in flight. Whoever calls it refunds the charges.
func (h *held) forget() {
	if h != nil {
		for _, gauge := range h.gauges {
			gauge.Add(-1)
		}
	}
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
		s.by.config.Headers(h, s.set.shown(s.decision))
	}
}
