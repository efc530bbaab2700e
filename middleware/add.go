package middleware

import (
	"context"
	"fmt"
	"math"

	"github.com/seed75154129/ratelimit/algorithms"
)

// Add says, while the request behind ctx runs, that it has used this many more units under
// one rule: tokens of a stream, rows, bytes. When the request is over, the sum of all Adds
// is settled as by [Settle], unless the rule was settled before. The request is over when
// the handler has returned or panicked, or, with a [Hold], when the Hold is released. A
// client that disconnects does not end the request. Without an Add, the charge stays: if a
// request uses nothing, call Add(ctx, rule, 0) to settle it at 0. After an Add, the rule
// ignores its ChargeOn for this request.
//
// The first units come out of the request's charge, so set Cost or CostFor to what a
// request usually uses. When the charge is used up, Add calls the limiter to take what is
// missing, or up to a quarter of the first charge, or an eighth of all that was charged, if
// that is more. If the rule has less left than is missing, this Add and all further ones
// return false: the handler should stop. The units count even then, if necessary as a debt. These calls of the limiter take
// as long as decisions, and follow the rule's Fail. They start no ban, but a ban denies
// them.
//
// In shadow, a rule takes nothing beyond the first charge, and Add returns true. Add does
// nothing, and returns true, if the rule does not apply to the request, has charged
// nothing, was settled before, or has an in_flight or leaky_bucket limit. After the request
// is over, Add returns false. Names that no rule has, and other mistakes, are logged once.
// Beyond the first charge, Settle refunds only units of the last 64 calls of the limiter,
// which nearly always are all.
//
// Several goroutines may call Add. If several chained middlewares have a rule of this
// name, Add is for the innermost.
func Add(ctx context.Context, rule string, units int64) bool {
	for s := stateOf(ctx); s != nil; s = s.outer {
		if s.find(rule) >= 0 {
			return s.add(rule, units)
		}
	}
	hintUnknown(ctx, "Add", rule)
	return true
}

// hintAdd logs a mistake in calls of Add for a rule, once.
func (s *requestState) hintAdd(rule, mistake string) {
	s.set.hints.say(fmt.Sprintf("Add: rule %q: %s", rule, mistake))
}

func (s *requestState) add(rule string, units int64) bool {
	if units < 0 {
		s.hintAdd(rule, "negative units count as 0; to lower the sum, call Settle")
		units = 0
	}
	s.mu.Lock()
	u := s.use(rule)
	switch {
	case s.holds == 0:
		s.mu.Unlock()
		s.hintAdd(rule, "the handler has returned, so nothing is counted; call Hold before that")
		return false
	case u.settled:
		s.mu.Unlock()
		return true
	case !u.added && !s.beginAdding(u):
		s.mu.Unlock()
		return true
	}
	u.sum += min(units, math.MaxInt64-u.sum)
	room, stopped := u.shadow || u.sum <= u.charged, u.stopped
	s.mu.Unlock()
	if room || stopped {
		return room
	}
	u.asking <- struct{}{}
	defer func() { <-u.asking }()
	return s.topUp(u)
}

// beginAdding prepares a usage for Add; false if there is nothing to add to. It requires
// mu.
func (s *requestState) beginAdding(u *usage) bool {
	free := false
	for i := range s.decision.Results {
		r := &s.decision.Results[i]
		if r.Check.Rule != u.rule {
			continue
		}
		if isHeld(r.Check.Limit) || r.Check.Limit.Algorithm == algorithms.LeakyBucket {
			s.hintAdd(u.rule, fmt.Sprintf("%s counts no units while a request runs; add to another rule, such as one with the limit 1000/1m", r.Check.Limit))
			return false
		}
		if r.Charged > 0 && (u.first == 0 || r.Charged < u.first) {
			u.first = r.Charged
		}
		u.shadow = r.Check.Shadow
		free = r.Check.Cost == 0
	}
	if u.first == 0 && !free {
		return false
	}
	u.added, u.charged, u.asking = true, u.first, make(chan struct{}, 1)
	return true
}

// maxMore is how many results of top-ups are kept, so that they can be refunded.
const maxMore = 64

// topUp takes what is missing. Its caller is the only one that does so for this usage.
func (s *requestState) topUp(u *usage) bool {
	s.mu.Lock()
	short, charged, over, stopped := u.sum-u.charged, u.charged, u.settled, u.stopped
	s.mu.Unlock()
	if over || short <= 0 {
		return true
	}
	if stopped {
		return false
	}
	d := s.takeMore(u.rule, short, max(short, u.first/4, charged/8)) // an eighth, so that maxMore are enough
	c := s.set.seriesOf(u.rule)
	if d.Allowed {
		c.toppedUp.Add(1)
	} else {
		c.notToppedUp.Add(1)
	}
	if !d.Allowed || len(d.Results) == 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		u.stopped = true
		return u.settled
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

// takeMore charges all windows of a rule, from least to most units; beside a soft window,
// which does not say how much is left, either least or most. Its denials count towards no
// ban.
func (s *requestState) takeMore(rule string, least, most int64) algorithms.Decision {
	var checks []algorithms.Check
	soft := false
	add := func(c algorithms.Check) {
		if c.Rule == rule {
			c.Cost, c.Lease, soft = most, false, soft || c.Limit.Soft
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
	for i := range checks {
		if !soft {
			checks[i].AtLeast = least
		}
	}
	d, err := s.by.limiter.ask(context.WithoutCancel(s.Context), false, checks)
	if err != nil {
		return algorithms.Decision{} // no limit can hold so many units
	}
	if soft && !d.Allowed && most > least {
		return s.takeMore(rule, least, least)
	}
	return d
}
