package middleware

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/wait"
)

// decide resolves the keys of the rules that match, and has the limiter charge them. The
// error says that a check is invalid.
//
// A client that is over its limits must not make the process read bodies. So if one key
// is known to be over its limit, the limiter decides without the rules whose keys read
// the body. It decides these only if it admits the request.
func (e *evaluation) decide() error {
	e.decision.Allowed = true
	if e.first < 0 {
		return nil
	}
	begun, rules := time.Duration(0), e.set.rules
	if !e.peeks {
		begun = e.m.now()
	}
	if e.handles { // what Take charges may come much later
		if outer := stateOf(e.request.Context()); outer != nil {
			e.spent = outer.spent
		}
	}
	if e.set.hints.watching() {
		e.seen = make([]seenKey, len(rules))
	}
	panicked := true
	defer func() {
		if panicked { // a function of the program's, after other rules were charged
			e.m.limiter.refund(e.request.Context(), e.decision)
		}
	}()
	readsBody := e.shareBody()
	var room [4]algorithms.Check
	checks := room[:0] // on the stack, if there are few
	var err error
	for _, readers := range [...]bool{false, true} { // then the rules whose keys read the body
		for i := e.first; i < len(rules); i++ {
			if rules[i].readsBody == readers && (i == e.first || rules[i].applies(&e.target)) {
				checks = e.resolve(i, checks)
			}
		}
		if readers || !readsBody || e.anyKnownOver(checks) {
			err = e.charge(checks)
		}
		if !readsBody || err != nil || !e.decision.Allowed {
			break
		}
	}
	for i := range e.decision.Results {
		if e.decision.Results[i].Source == algorithms.SourceFallback { // by a share of its limit
			own := slices.Concat(checks, e.free)
			e.checks = &own
			break
		}
	}
	if !e.peeks && (len(e.decision.Results) > 0 || err != nil) {
		e.decidedAt = e.m.now()
		e.m.decisions.Observe(e.decidedAt - begun)
	}
	if e.seen != nil {
		e.set.hints.decided(e.request, rules, e.seen)
	}
	if panicked = false; !e.peeks && err == nil {
		e.hold()
	}
	return err
}

func (e *evaluation) anyKnownOver(checks []algorithms.Check) bool {
	for _, c := range e.set.withLooks(checks) {
		if !c.Shadow && e.m.limiter.knownOver(c) {
			return true
		}
	}
	return false
}

// charge has the limiter charge the checks that it has not decided yet. If it denies
// them, the checks that were charged before are refunded.
func (e *evaluation) charge(all []algorithms.Check) error {
	ctx, checks := e.request.Context(), all[e.decided:]
	over := len(e.free) > e.looked && e.anyKnownOver(checks) // a flood that is denied here asks no store
	if !over {
		if err := e.lookAtFree(ctx); err != nil || !e.decision.Allowed {
			return err
		}
	}
	if len(checks) == 0 {
		return nil
	}
	if len(e.queues) > 0 {
		e.enterQueue(ctx, checks)
	}
	d, err := e.ask(ctx, e.peeks, checks)
	if err != nil && !e.peeks {
		e.set.failed(checks)
	}
	if !d.Allowed {
		e.set.setRetryAfter(d.Results)
		if !e.peeks {
			e.strike(&d)
		}
	}
	if len(e.decision.Results) > 0 {
		if !d.Allowed {
			e.m.limiter.refund(ctx, e.decision)
		}
		d.Results = append(e.decision.Results, d.Results...)
	}
	e.decision, e.decided = d, len(all)
	if over && err == nil && d.Allowed {
		return e.lookAtFree(ctx)
	}
	return err
}

// ask is Middleware.ask in what the request has left of one budget for all its waits for
// decisions: in this middleware and those in front, and for other requests.
func (e *evaluation) ask(ctx context.Context, peeks bool, checks []algorithms.Check) (algorithms.Decision, error) {
	if _, inMemory := e.m.limiter.Limiter.(*algorithms.Memory); inMemory { // waits for nothing
		return e.m.ask(ctx, e.set, peeks, checks)
	}
	begun, budget := e.m.now(), e.m.limiter.budget()
	if budget > 0 && e.spent > 0 {
		ctx = wait.PartOf(ctx, e.m.start.Add(begun+budget-e.spent))
	}
	d, err := e.m.ask(ctx, e.set, peeks, checks)
	e.spent += e.m.now() - begun
	return d, err
}

// now is the time since the Middleware was made, which costs half of time.Now.
func (m *Middleware) now() time.Duration { return time.Since(m.start) }

// setRetryAfter sets the RetryAfter of rules on requests in flight.
func (s *ruleset) setRetryAfter(results []algorithms.Result) {
	for i := range results {
		if r := &results[i]; isHeld(r.Check.Limit) && r.Err == nil && !r.HasRoom && r.Source != algorithms.SourceNone {
			if at, ok := s.find(r.Check.Rule, 0); ok {
				r.RetryAfter = cmp.Or(s.rules[at].source.RetryAfter, r.RetryAfter)
			}
		}
	}
}

// lookAtFree asks what is left under the rules for which the request is free. Only a ban
// denies it. What cannot be looked at passes uncounted: Add takes units of it all the same.
func (e *evaluation) lookAtFree(ctx context.Context) error {
	free := e.free[e.looked:]
	if len(free) == 0 {
		return nil
	}
	d, err := e.ask(ctx, true, free)
	if errors.Is(err, algorithms.ErrInvalidCheck) {
		return err
	}
	e.looked = len(e.free)
	for i := 0; err != nil && i < len(free); i++ { // the limiter cannot peek
		d.Results = append(d.Results, algorithms.Result{Check: free[i], Err: err})
	}
	for i := range d.Results {
		r := &d.Results[i]
		if r.BannedFor == 0 {
			r.HasRoom, r.RetryAfter, r.Delay = true, 0, 0
			if r.Err != nil {
				r.Source = algorithms.SourceFailOpen
			}
		}
		e.decision.Results = append(e.decision.Results, *r)
		e.decision.Allowed = e.decision.Allowed && !r.Denies()
	}
	if !e.decision.Allowed && e.decided > 0 {
		e.m.limiter.refund(ctx, e.decision)
	}
	return nil
}

// hold notes what an admitted request holds.
func (e *evaluation) hold() {
	if !e.decision.Allowed {
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
		gauge := &e.set.seriesOf(r.Check.Rule).inFlight
		gauge.Add(1)
		e.held.gauges = append(e.held.gauges, gauge)
	}
}
