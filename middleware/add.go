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
// stream, rows, bytes. When the request is over, the sum of all Adds is settled as by
// [Settle], unless the rule was settled before. The request is over when the handler has
// returned or panicked, or, with a [Hold], when the Hold is released. A client that
// disconnects does not end the request. Without an Add, the charge stays: if a request uses
// nothing, call Add(ctx, rule, 0) to settle it at 0. After an Add, the rule ignores its
// ChargeOn for this request.
//
// The first units come out of the request's charge, so set Cost or CostFor to what a
// request usually uses. When the charge is used up, Add calls the limiter to take what is
// missing, or up to a quarter of the first charge, or an eighth of all that was charged, if
// that is more; a second call takes what is left, if that is less. If the rule has less left
// than is missing, the error wraps [ErrDenied], and the units are not charged: the handler
// should stop. These calls of the limiter take as long as decisions, and follow the rule's
// Fail. They start no ban, but a ban denies them.
//
// Add returns nil and does nothing if the rule does not apply to the request, has charged
// nothing, or was settled before. In shadow, a rule takes nothing beyond the first charge,
// and denies nothing. The error wraps [ErrNoRule] as that of Settle does. Negative units, a
// rule with an in_flight or leaky_bucket limit, and calls after the request is over are
// errors, too. Beyond the first charge, Settle refunds only units of the last 64 calls of
// the limiter, which nearly always are all.
//
// Several goroutines may call Add. If several chained middlewares have a rule of this
// name, Add is for the innermost.
func Add(ctx context.Context, rule string, units int64) error {
	for s := stateOf(ctx); s != nil; s = s.outer {
		if s.find(rule) >= 0 {
			return s.add(rule, units)
		}
	}
	return unknown(ctx, rule)
}

func (s *requestState) add(rule string, units int64) error {
	s.mu.Lock()
	u, err := s.adding(rule, units)
	if err != nil || u == nil {
		s.mu.Unlock()
		return err
	}
	if u.fits(units) {
		u.sum += min(units, math.MaxInt64-u.sum)
		s.mu.Unlock()
		return nil
	}
	s.mu.Unlock()
	u.asking <- struct{}{} // others may ask for more than there is
	defer func() { <-u.asking }()
	s.mu.Lock()
	if u.settled {
		defer s.mu.Unlock()
		_, err = s.adding(rule, units)
		return err
	}
	room := u.fits(units)
	units = min(units, math.MaxInt64-u.sum)
	u.sum += units
	s.mu.Unlock()
	if room || s.topUp(u) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if u.settled { // meanwhile, with these units
		return nil
	}
	u.sum -= units
	return fmt.Errorf("%w: rule %q", ErrDenied, rule)
}

// fits reports whether units need no further charge. It requires the state's mu.
func (u *usage) fits(units int64) bool {
	return u.shadow || units <= max(u.charged-u.sum, 0)
}

// adding returns the usage of a rule that has charged the request; nil if there is nothing
// to add to. It requires mu.
func (s *requestState) adding(rule string, units int64) (*usage, error) {
	u := s.use(rule)
	switch {
	case units < 0:
		return nil, addError(rule, "units must not be negative, got %d; to lower the sum, call Settle", units)
	case s.holds == 0:
		return nil, addError(rule, "the handler has returned, so nothing is counted; call Hold before that")
	case u.settled:
		return nil, nil
	case u.added:
		return u, nil
	}
	free := false
	for i := range s.decision.Results {
		r := &s.decision.Results[i]
		if r.Check.Rule != u.rule {
			continue
		}
		if isHeld(r.Check.Limit) || r.Check.Limit.Algorithm == algorithms.LeakyBucket {
			return nil, addError(rule, "%s counts no units while a request runs; add to another rule, such as one with the limit 1000/1m", r.Check.Limit)
		}
		if r.Charged > 0 && (u.first == 0 || r.Charged < u.first) {
			u.first = r.Charged
		}
		u.shadow = r.Check.Shadow
		free = r.Check.Cost == 0
	}
	if u.first == 0 && !free {
		return nil, nil
	}
	u.added, u.charged, u.asking = true, u.first, make(chan struct{}, 1)
	return u, nil
}

func addError(rule, format string, args ...any) error {
	return fmt.Errorf("middleware: add: rule %q: "+format, append([]any{rule}, args...)...)
}

// maxMore is how many results of top-ups are kept, so that they can be refunded.
const maxMore = 64

// topUp takes what is missing; false if there is no room. Its caller is the only one that
// does so for this usage.
func (s *requestState) topUp(u *usage) bool {
	s.mu.Lock()
	short, charged, over := u.sum-u.charged, u.charged, u.settled
	s.mu.Unlock()
	if over || short <= 0 {
		return true
	}
	d := s.takeMore(u.rule, short, max(short, u.first/4, charged/8)) // an eighth, so that maxMore are enough
	c := s.set.seriesOf(u.rule)
	if d.Allowed {
		c.toppedUp.Add(1)
	} else {
		c.notToppedUp.Add(1)
	}
	if !d.Allowed || len(d.Results) == 0 {
		return false
	}
	var units, debt int64 // by all windows, but where what is over may be more than can be counted; 0 if the rule fails open
	for i := range d.Results {
		r := &d.Results[i]
		units, debt = max(units, r.Charged), max(debt, beyond(r.Charged, r.Remaining))
	}
	s.mu.Lock()
	if over = u.settled; !over {
		u.charged += units
		u.more = append(u.more, d.Results...)
		if n := len(d.Results); len(u.more) > maxMore*n {
			u.spent += u.more[0].Charged
			u.more = u.more[n:]
		}
	}
	s.mu.Unlock()
	if over {
		s.by.limiter.refund(s.Context, d)
		return true
	}
	c.charged.Add(uint64(units))
	c.debt.Add(uint64(debt))
	return true
}

// takeMore charges all windows of a rule most units or, if less is left, what is left, unless
// that is below least. Its denials count towards no ban.
func (s *requestState) takeMore(rule string, least, most int64) algorithms.Decision {
	var checks []algorithms.Check
	add := func(c algorithms.Check) {
		if c.Rule == rule {
			c.Cost, c.Lease = most, false
			lent.Check(&c).Spare()
			checks = append(checks, c)
		}
	}
	for i := range s.checks {
		add(s.checks[i])
	}
	if s.checks == nil {
		for results, i := s.current().Results, 0; i < len(results); i++ {
			add(results[i].Check)
		}
	}
	d, err := s.by.limiter.ask(context.WithoutCancel(s.Context), false, checks)
	if err != nil {
		return algorithms.Decision{} // no limit can hold so many units
	}
	if d.Allowed {
		return d
	}
	left := most - 1
	for i := range d.Results {
		left = min(left, d.Results[i].Remaining)
	}
	if left < least {
		return d
	}
	return s.takeMore(rule, least, left)
}
