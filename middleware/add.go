package middleware

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/seed75154129/ratelimit/algorithms"
)

// ErrDenied means that a limit has no room for the units that [Add] asked for.
var ErrDenied = errors.New("middleware: over the limit")

// Add asks, while the request behind ctx runs, for more units under one rule: tokens of a
// stream, rows, bytes. When the request is over, it costs the sum of all Adds, unless [Settle]
// has set another cost. The request is over when the handler has returned or panicked, or,
// with a [Hold], when the Hold is released. A client that disconnects does not end the
// request. Without an Add, the charge stays: if a request uses nothing, call
// Add(ctx, rule, 0). After an Add, the rule ignores its ChargeOn for this request.
//
// The first units come out of the request's charge, so set Cost or CostFor to what a
// request usually uses. When the charge is used up, Add calls the limiter to take what is
// missing, or up to a quarter of the first charge, or an eighth of all that was charged, if
// that is more. If the rule has less left, Add takes only what is missing, from then on. If
// that is more than is left, the error wraps [ErrDenied], and the units are not charged: the
// handler should stop. These calls of the limiter take as long as decisions, and follow the
// rule's Fail. They start no ban, but a ban denies them.
//
// Add returns nil and does nothing if the rule does not apply to the request, or was settled
// before, by Settle or ChargeOn. The same holds if the rule has charged nothing to a request
// that is not free: the request was over the limit in shadow, or passed an outage with Fail
// Open. Beyond the first charge, a rule in shadow takes and denies nothing, nor does, in an
// outage, one with Fail Open. The error wraps [ErrNoRule] as that of Settle does. Negative
// units, a rule with an in_flight or leaky_bucket limit, and calls after the request is over
// are errors, too. Of what Add has taken, the last 64 calls of the limiter can be refunded,
// which nearly always are all.
//
// Several goroutines may call Add. If several chained middlewares have a rule of this
// name, Add is for the innermost.
func Add(ctx context.Context, rule string, units int64) error {
	s, err := stateWith(ctx, rule)
	if s == nil {
		return err
	}
	return s.add(rule, units)
}

func (s *requestState) add(rule string, units int64) error {
	units = min(units, math.MaxInt64/2) // so that no sum overflows
	if a, err := s.addFitting(rule, units, true); a == nil {
		return err
	}
	s.calls <- struct{}{} // others may be asking for more than there is
	defer func() { <-s.calls }()
	a, err := s.addFitting(rule, units, false)
	if a == nil || s.takeMore(a) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a.sum -= units
	return fmt.Errorf("%w: rule %q", ErrDenied, rule)
}

// addFitting adds units that need no further charge or, unless only those are to be added,
// any. It returns the account if a charge is missing.
func (s *requestState) addFitting(rule string, units int64, only bool) (missing *account, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, err := s.adding(rule, units)
	if a == nil {
		return nil, err
	}
	fits := a.shadow || units <= max(a.charged-a.sum, 0)
	if fits || !only {
		a.sum += min(units, math.MaxInt64-a.sum)
	}
	if fits {
		return nil, nil
	}
	return a, nil
}

// adding returns the account of a rule that has charged the request; nil if there is nothing
// to add to. It requires mu.
func (s *requestState) adding(rule string, units int64) (*account, error) {
	a := s.account(rule)
	switch {
	case units < 0:
		return nil, addError(rule, "units must not be negative, got %d; to lower the sum, call Settle", units)
	case s.holds == 0:
		return nil, addError(rule, "the handler has returned, so nothing is counted; call Hold before that")
	case a.settled:
		return nil, nil
	case a.added:
		return a, nil
	}
	free := false
	for i := range a.parts[0] {
		r := &a.parts[0][i]
		if isHeld(r.Check.Limit) || r.Check.Limit.Algorithm == algorithms.LeakyBucket {
			return nil, addError(rule, "%s counts no units while a request runs; add to another rule, such as one with the limit 1000/1m", r.Check.Limit)
		}
		if r.Charged > 0 && (a.first == 0 || r.Charged < a.first) {
			a.first = r.Charged
		}
		a.shadow = r.Check.Shadow
		free = r.Check.Cost == 0
	}
	if a.first == 0 && !free {
		return nil, nil
	}
	a.added, a.charged = true, a.first
	return a, nil
}

func addError(rule, format string, args ...any) error {
	return fmt.Errorf("middleware: add: rule %q: "+format, append([]any{rule}, args...)...)
}

// takeMore takes what is missing; false if there is no room. Its caller has put an element into calls.
func (s *requestState) takeMore(a *account) bool {
	s.mu.Lock()
	missing := a.sum - a.charged
	s.mu.Unlock()
	if missing <= 0 {
		return true
	}
	most := max(missing, a.first/4, a.charged/8) // an eighth, so that maxParts are enough
	if a.scarce {
		most = missing
	}
	d := s.take(a.rule, most)
	if !d.Allowed && most > missing {
		a.scarce = true
		d = s.take(a.rule, missing)
	}
	c := s.set.seriesOf(a.rule)
	if !d.Allowed || len(d.Results) == 0 {
		c.notToppedUp.Add(1)
		return false
	}
	c.toppedUp.Add(1)
	s.mu.Lock()
	units := a.append(d.Results)
	s.mu.Unlock()
	c.charged.Add(uint64(units))
	var debt int64
	for i := range d.Results {
		debt = max(debt, beyond(d.Results[i].Charged, d.Results[i].Remaining))
	}
	c.debt.Add(uint64(debt))
	return true
}

// take charges all windows of a rule more units. Its denials are no strikes.
func (s *requestState) take(rule string, units int64) algorithms.Decision {
	var checks []algorithms.Check
	add := func(c algorithms.Check) {
		if c.Rule == rule {
			c.Cost, c.Sync = units, 0
			checks = append(checks, c)
		}
	}
	if s.checks != nil {
		for _, c := range *s.checks {
			add(c)
		}
	} else {
		for i := range s.decision.Results {
			add(s.decision.Results[i].Check)
		}
	}
	d, err := s.by.ask(context.WithoutCancel(s.Context), s.set, false, checks)
	if err != nil {
		return algorithms.Decision{} // no limit can hold so many units
	}
	d.Results = d.Results[:len(checks)] // a limiter may add results
	return d
}
