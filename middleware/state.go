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

	held    *held              // released when the request is over
	checks  []algorithms.Check // that were decided; nil if they are those of the results
	request *http.Request      // for Config.Settled; nil if it is not to be called
	unpaid  bool               // only Add may have charged it

	hasStatus bool // the handler has written one; known only with mayRefund

	mu        sync.Mutex
	decision  algorithms.Decision // its Results are never changed, only replaced
	used      *usage              // of the rules that were settled or added to; a list
	holds     int32               // by the handler and by Hold, that were not released; 0 if the request is over
	spent     time.Duration       // waiting for decisions, in all middlewares so far; never changes
	mayRefund bool                // a rule with ChargeOn has charged the request; never changes
}

// A usage is what is known of a request's use of one rule after the decision.
type usage struct {
	next    *usage
	rule    string
	settled bool  // it cannot be settled again
	err     error // why the limiter could not settle it

	added   bool                // by Add; what follows is of Add
	shadow  bool                // nothing is taken beyond the first charge
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

// chargedBefore returns a rule by which a middleware in front, with the same limiter, has
// charged the request already; "" if there is none.
func (s *requestState) chargedBefore() string {
	for o := s.outer; o != nil; o = o.outer {
		mine, its := s.by.limiter.Limiter, o.by.limiter.Limiter
		if !reflect.ValueOf(mine).Comparable() || mine != its {
			continue
		}
		for _, before := range o.current().Results {
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
	for _, r := range s.current().Results {
		if at, ok := s.set.find(r.Check.Rule, 0); ok && r.Charged > 0 && r.Check.Rule != last && s.set.rules[at].source.ChargeOn != nil {
			last = r.Check.Rule
			s.set.hints.answered(at, &s.set.rules[at], status)
		}
	}
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
