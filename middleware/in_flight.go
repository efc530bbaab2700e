package middleware

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/seed75154129/ratelimit/algorithms"
)

// Hold keeps the request behind ctx from being over until release is called, even after
// the handler has returned. It is for connections that a handler hands on, and for work
// that goes on after a 202. Until release, the rules that limit requests in flight
// count the request, and [Add] and [Settle] may be called, even after ctx is cancelled.
//
// Call Hold before the handler returns, and release in a defer: a request that is never
// released stays in flight until the process ends. The metric ratelimit_in_flight
// shows it. release may be called several times, by any goroutine. Of several Holds, the
// last release counts.
func Hold(ctx context.Context) (release func()) {
	var kept []*requestState
	for s := stateOf(ctx); s != nil; s = s.outer {
		if s.keep() {
			kept = append(kept, s)
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
	if s.closed && s.holds == 0 {
		return false
	}
	s.holds++
	return true
}

// letGo undoes a keep.
func (s *requestState) letGo() {
	s.mu.Lock()
	s.holds--
	over := s.closed && s.holds == 0
	s.mu.Unlock()
	if over {
		s.finish()
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

// hold notes what an admitted request holds.
func (e *evaluation) hold() {
	if !e.set.holds || !e.decision.Allowed {
		return
	}
	for i := range e.decision.Results {
		r := &e.decision.Results[i]
		if r.Charged == 0 || !isHeld(r.Check.Limit) {
			continue
		}
		if e.held == nil {
			e.held = &held{ctx: e.request.Context(), by: e.m}
			e.held.charges, e.held.gauges = e.held.room.charges[:0], e.held.room.gauges[:0]
		}
		e.held.charges = append(e.held.charges, algorithms.Charge{Result: *r})
		if at, ok := e.set.find(r.Check.Rule, 0); ok {
			gauge := &e.set.watches[at].series.inFlight
			gauge.Add(1)
			e.held.gauges = append(e.held.gauges, gauge)
		}
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
			h.by.unrefunded.Do(func() { h.by.logger.Error("ratelimit: request in flight not released", "error", err) })
		}
	})
}

var errEndless = errors.New("the request's context never ends, and a rule limits requests in flight: Take holds them until it does; use context.WithCancel")

// untilDone releases what a request that Take has charged holds when its context ends.
func (h *held) untilDone() error {
	switch {
	case h == nil:
		return nil
	case h.ctx.Done() == nil:
		h.release()
		return fmt.Errorf("middleware: take: %w", errEndless)
	}
	context.AfterFunc(h.ctx, h.release)
	return nil
}

// isHeld reports whether requests hold what they are charged by a limit.
func isHeld(l algorithms.Limit) bool { return l.Algorithm == algorithms.InFlight }

// holds reports whether the rule may have such a limit.
func (r *rule) holds() bool { return r.source.LimitsFor != nil || r.source.hasHeld() }

func (r *Rule) hasHeld() bool {
	return slices.ContainsFunc(r.limits(), func(l ruleLimit) bool { return isHeld(l.Limit) })
}

// validateHeld says what a rule on requests in flight cannot have.
func (r *Rule) validateHeld(bad func(string, error)) {
	const one = "a request in flight costs 1; leave it out, and count units by another rule, such as one with the limit 1000/1m"
	if r.Cost > 1 {
		bad("Cost", fmt.Errorf("%s; got %d", one, r.Cost))
	}
	if r.Costs != nil {
		bad("Costs", errors.New(one))
	}
	if r.CostFor != nil {
		bad("CostFor", errors.New(one))
	}
	if r.ChargeOn != nil {
		bad("ChargeOn", errors.New("every request in flight is released when it ends, whatever its status; leave it out, or write another rule with a window, such as 5/1m"))
	}
	if r.Ban != (algorithms.Ban{}) {
		bad("Ban", errors.New("not with in_flight, whose denials come of requests that end; put the ban on a rule with a rate, such as 100/1m"))
	}
	if r.Lease {
		bad("Lease", errors.New("not with in_flight, which has no units to take in blocks; leave it out"))
	}
}
