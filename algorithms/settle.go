package algorithms

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/seed75154129/ratelimit/internal/step"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// A settledCost is what a charge was last settled at. All copies of its result share
// it, so that nothing is given back twice. 0 means that the charge was never settled;
// otherwise it is the complement of the cost, which is negative. Nil is for results
// that no limiter here has made: each copy is a charge of its own.
type settledCost struct{ complement atomic.Int64 }

// now is what a charge of so many units costs now.
func (s *settledCost) now(units int64) int64 {
	if s != nil {
		if complement := s.complement.Load(); complement != 0 {
			return ^complement
		}
	}
	return units
}

// claim makes the charge cost so much for all copies of its result, and returns what it
// cost before. It is false where there is nothing to settle: the cost is that already,
// or 0, which ends a charge.
func (s *settledCost) claim(units, cost int64) (before int64, ok bool) {
	for s != nil {
		complement := s.complement.Load()
		if before = ^complement; complement == 0 {
			before = units
		}
		if before <= 0 || before == cost {
			return before, false
		}
		if s.complement.CompareAndSwap(complement, ^cost) {
			return before, true
		}
	}
	return units, units > 0 && units != cost
}

// undo undoes a claim, and leaves what others have claimed since.
func (s *settledCost) undo(before, cost int64) {
	for s != nil {
		complement := s.complement.Load()
		if s.complement.CompareAndSwap(complement, ^max(^complement+before-cost, 0)) {
			return
		}
	}
}

// update makes a copy of a result say what its charge costs now.
func (r *Result) update() { r.setCharged(r.settled.now(r.Charged)) }

func (r *Result) setCharged(units int64) {
	r.trace.Followed = r.followedAt(units)
	r.Charged = units
}

// followedAt is what a memory that follows has charged if it costs so many units.
func (r *Result) followedAt(units int64) int64 {
	if r.trace.Followed == 0 {
		return 0
	}
	return max(r.trace.Followed+units-r.Charged, 0)
}

// settleBy settles a result at a cost by what change does with how many units more it
// is; false if that could not be done.
func (r *Result) settleBy(cost int64, change func(units int64) bool) {
	before, ok := r.settled.claim(r.Charged, cost)
	if ok && !change(cost-before) {
		r.settled.undo(before, cost)
	}
	r.update()
}

// newResults makes n results whose copies know of each other. Up to four, as of the
// usual request, are one allocation.
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

// prepareSettle returns a copy of the charges' results, for Settle to return,
// and the corrections of those that a store of this source charged and that are
// to cost something else.
func prepareSettle(charges []Charge, source Source) ([]Result, []settlement, error) {
	results := make([]Result, len(charges))
	var cs []settlement
	var errs []error
	for i := range charges {
		res := &results[i]
		*res = charges[i].Result
		cost := charges[i].Cost
		switch {
		case cost < 0:
			errs = append(errs, fmt.Errorf("%w: rule %q: settle: cost must not be negative, got %d", ErrInvalidCheck, res.Check.Rule, cost))
			continue
		case res.Source != source || res.Charged <= 0:
			continue
		case cost > 0 && cost != res.Charged && res.Check.Limit.held():
			errs = append(errs, fmt.Errorf("%w: rule %q: settle: a request in flight is settled at 0, got %d", ErrInvalidCheck, res.Check.Rule, cost))
			continue
		}
		if err := res.Check.Validate(); err != nil {
			errs = append(errs, err)
			continue
		}
		before, ok := res.settled.claim(res.Charged, cost)
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
			Delta:  cost - before,
		}, res})
	}
	return results, cs, errors.Join(errs...)
}

// failed is for a correction of which no answer came, or an error. If nobody knows
// whether it was made, the charge costs the lower of both: to settle it once more gives
// nothing back twice.
func (c *settlement) failed(err error) {
	if c.Delta > 0 || c.Held || transport.NotExecuted(err) || metBan(err) {
		c.result.settled.undo(c.Units, c.Units+c.Delta)
	}
}

// answer makes the result say what it costs now, by the state of its key.
func (c *settlement) answer(s step.State, now int64) {
	r := c.result
	bannedUntil := r.At.Add(r.BannedFor).UnixMicro()
	if r.BanBegan {
		bannedUntil = -bannedUntil
	}
	r.setCharged(c.Units + c.Delta)
	r.At, r.trace.Charge = time.UnixMicro(now), step.Placed{}
	if r.trace.Known = !c.Summary; r.trace.Known {
		r.trace.State = s.Numbers()
	}
	_, where, _ := c.Params.Take(s, now)
	if r.Charged > 0 { // its slot is where it was
		r.trace.Charge, where = c.Placed, c.Placed
	}
	var a step.Answer
	c.Params.Answer(&a, true, &s, where, now)
	r.Remaining, r.ResetAfter = a.Remaining, a.ResetAfter
	if c.Queue {
		r.Delay = max(a.Delay, 0)
	}
	if r.BannedFor > 0 { // the check had room and was charged, where keys are sharded
		r.RetryAfter = 0
		r.ban(bannedUntil, now)
	}
}
