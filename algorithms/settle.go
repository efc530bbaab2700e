package algorithms

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed75154129/ratelimit/internal/step"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// A Charge is a result and what its check is to cost in the end.
type Charge struct {
	Result Result // as Take or Settle returned it, or a copy
	Cost   int64  // 0 refunds all units; more than was charged may go into debt; negative is an error
}

// Refund makes the charges of d cost nothing, for work that was not done: the charges
// of all rules, or only of those that are named. It replaces d's results by those that
// [Limiter.Settle] returns. A charge that cannot be refunded stays, which errs towards
// denying. The end of ctx does not stop Refund.
func Refund(ctx context.Context, l Limiter, d Decision, rules ...string) error {
	var charges []Charge
	var at []int
	for i := range d.Results {
		if r := &d.Results[i]; r.Charged > 0 && (len(rules) == 0 || slices.Contains(rules, r.Check.Rule)) {
			charges, at = append(charges, Charge{Result: *r}), append(at, i)
		}
	}
	if len(charges) == 0 {
		return nil
	}
	results, err := l.Settle(context.WithoutCancel(ctx), charges...)
	for i := range results {
		d.Results[at[i]] = results[i]
	}
	return err
}

// A settledCost holds the cost at which a charge was last settled. All copies of the
// result share it, so that no unit is refunded twice. It is nil for results that a
// limiter outside this module has made: each copy is a charge of its own.
type settledCost struct {
	complement atomic.Int64 // of the cost, which is negative; 0: the charge was never settled
	rising     atomic.Int64 // units of the cost that settlements under way are to charge first
}

// now returns what a charge of this many units costs now.
func (s *settledCost) now(units int64) int64 {
	if s != nil {
		if complement := s.complement.Load(); complement != 0 {
			return ^complement
		}
	}
	return units
}

// claim sets the charge's cost for all copies of its result, and returns the costs before
// and after. Units that another settlement has not charged yet cannot be refunded: the
// cost after is at least those. ok is false if there is nothing to settle: the charge has
// this cost already, or it has ended at 0. Each claim that is ok has its end.
func (s *settledCost) claim(units, cost int64) (before, after int64, ok bool) {
	for s != nil {
		complement := s.complement.Load()
		if before = ^complement; complement == 0 {
			before = units
		}
		if before <= 0 || before == cost {
			return before, before, false
		}
		rise := max(cost-before, 0)
		if rise == 0 {
			if after = max(cost, s.rising.Load()); after >= before {
				return before, before, false
			}
		} else {
			after = cost
			s.rising.Add(rise)
		}
		if s.complement.CompareAndSwap(complement, ^after) {
			return before, after, true
		}
		s.rising.Add(-rise)
	}
	return units, cost, units > 0 && units != cost
}

// end ends a claim. If the settlement was not made, it undoes the claim, but not the
// claims that others have made since.
func (s *settledCost) end(before, after int64, made bool) {
	for s != nil && !made {
		complement := s.complement.Load()
		made = s.complement.CompareAndSwap(complement, ^max(^complement+before-after, 0))
	}
	if s != nil && after > before { // last: until then nobody refunds these units
		s.rising.Add(before - after)
	}
}

// update sets Charged to what the charge costs now.
func (r *Result) update() {
	r.setCharged(r.settled.now(r.Charged))
	r.moved = &unmoved
}

func (r *Result) setCharged(units int64) {
	if r.trace.Followed != 0 {
		r.trace.Followed = max(r.trace.Followed+units-r.Charged, 0)
	}
	r.Charged = units
}

// level settles what checks with AtLeast were granted, each by itself, at the least of it.
// Units that settle cannot refund stay charged, which errs towards denying.
func level(results []Result, settle func([]Charge) []Result) {
	least := int64(math.MaxInt64)
	for i := range results {
		if r := &results[i]; r.Check.takesLess() && !r.Check.Shadow && r.Charged > 0 {
			least = min(least, r.Charged)
		}
	}
	var charges []Charge
	var at []int
	for i := range results {
		if r := &results[i]; r.Check.takesLess() && r.Charged > least {
			charges, at = append(charges, Charge{*r, least}), append(at, i)
		}
	}
	if len(charges) == 0 {
		return
	}
	for j, r := range settle(charges) {
		r.moved = nil // it is of the decision
		results[at[j]] = r
	}
	for _, i := range at {
		results[i].setCharged(least)
	}
}

// newResults makes n results, each of which shares its settledCost with its copies. Up to
// four results are one allocation.
func newResults(n int) []Result {
	switch n {
	case 1:
		b := new(batchOfResults[[1]Result, [1]settledCost])
		return sharing(b.results[:], b.settled[:])
	case 2:
		b := new(batchOfResults[[2]Result, [2]settledCost])
		return sharing(b.results[:], b.settled[:])
	case 3:
		b := new(batchOfResults[[3]Result, [3]settledCost])
		return sharing(b.results[:], b.settled[:])
	case 4:
		b := new(batchOfResults[[4]Result, [4]settledCost])
		return sharing(b.results[:], b.settled[:])
	}
	return sharing(make([]Result, n), make([]settledCost, n))
}

type batchOfResults[R, S any] struct {
	results R
	settled S
}

func sharing(results []Result, settled []settledCost) []Result {
	for i := range results {
		results[i].settled = &settled[i]
	}
	return results
}

// A settlement is a correction and its result.
type settlement struct {
	step.Correction
	result *Result // what Settle returns of it
}

// prepareSettle returns a copy of the charges' results, for Settle to return, and the
// corrections of those charges that a store of this source made and that are to cost
// something else. If a charge is invalid, it prepares nothing.
func prepareSettle(charges []Charge, source Source) ([]Result, []settlement, error) {
	if err := invalidCharges(charges); err != nil {
		return nil, nil, err
	}
	results := make([]Result, len(charges))
	var cs []settlement
	for i := range charges {
		res, cost := &results[i], charges[i].Cost
		*res = charges[i].Result
		if res.moved = &unmoved; res.Source != source || res.Charged <= 0 {
			continue
		}
		before, after, ok := res.settled.claim(res.Charged, cost)
		if !ok {
			res.setCharged(before)
			continue
		}
		p := paramsOf(&res.Check, res.Check.Limit.row())
		p.ID = res.trace.Charge.At // where it is one
		cs = append(cs, settlement{step.Correction{
			Params: p,
			Placed: res.trace.Charge,
			Units:  before,
			Delta:  after - before,
		}, res})
	}
	return results, cs, nil
}

// invalidCharges is why charges cannot be settled, or nil.
func invalidCharges(charges []Charge) error {
	var errs []error
	for i := range charges {
		if err := charges[i].invalid(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (c *Charge) invalid() error {
	switch check := &c.Result.Check; {
	case c.Cost < 0:
		return fmt.Errorf("%w: rule %q: settle: cost must not be negative, got %d", ErrInvalidCheck, check.Rule, c.Cost)
	case c.Cost > 0 && c.Cost != c.Result.Charged && c.Result.Charged > 0 && check.Limit.held():
		return fmt.Errorf("%w: rule %q: settle: a request in flight is settled at 0, got %d", ErrInvalidCheck, check.Rule, c.Cost)
	case c.Result.Charged > 0:
		return check.Validate()
	}
	return nil
}

// failed ends a correction that returned an error. If it may have been made all the same,
// the charge keeps the lower of both costs, so that settling it again refunds no unit
// twice.
func (c *settlement) failed(err error) {
	perhaps := c.Delta < 0 && !c.Held && !transport.NotExecuted(err) && !metBan(err)
	c.result.settled.end(c.Units, c.Units+c.Delta, perhaps)
}

// answer updates the result from the state of its key after the correction.
func (c *settlement) answer(s step.State, now int64) {
	r := c.result
	bannedUntil := r.At.Add(r.BannedFor).UnixMicro()
	if r.BanBegan {
		bannedUntil = -bannedUntil
	}
	r.settled.end(c.Units, c.Units+c.Delta, true)
	r.setCharged(c.Units + c.Delta)
	r.At, r.trace.Charge = time.UnixMicro(now), step.Placed{}
	if r.known = !c.Summary; r.known {
		r.trace.State = s.Numbers()
	}
	_, where, fits := c.Params.Take(s, now)
	over := c.Soft && !r.HasRoom
	if r.Charged > 0 { // its slot is where it was
		r.trace.Charge, where = c.Placed, c.Placed
	}
	var a step.Answer
	c.Params.Answer(&a, fits || !over, &s, where, now)
	r.Remaining, r.ResetAfter = a.Remaining, a.ResetAfter
	r.moved = &[]span{r.spanOf(c.Delta)}
	if c.Queue {
		r.Delay = max(a.Delay, 0)
	}
	switch {
	case over:
		r.RetryAfter = a.RetryAfter
	case r.BannedFor > 0: // the check had room and was charged, where keys are sharded
		r.RetryAfter = 0
	}
	if r.BannedFor > 0 {
		r.ban(bannedUntil, now)
	}
}
