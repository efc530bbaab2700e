package algorithms

import (
	"errors"
	"fmt"
	"time"

	"github.com/seed75154129/ratelimit/internal/step"
)

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
		case res.Source != source || res.Charged <= 0 || res.Charged == cost:
			continue
		}
		if err := res.Check.Validate(); err != nil {
			errs = append(errs, err)
			continue
		}
		cs = append(cs, settlement{step.Correction{
			Params: paramsOf(&res.Check, res.Check.Limit.row()),
			Placed: res.trace.Charge,
			Units:  res.Charged,
			Delta:  cost - res.Charged,
		}, res})
	}
	return results, cs, errors.Join(errs...)
}

// answer makes the result say what it costs now, by the state of its key.
func (c *settlement) answer(s step.State, now int64) {
	r := c.result
	bannedUntil := r.At.Add(r.BannedFor).UnixMicro()
	if r.BanBegan {
		bannedUntil = -bannedUntil
	}
	r.Charged, r.At, r.trace.Charge = r.Charged+c.Delta, time.UnixMicro(now), step.Placed{}
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
	if r.Banned { // the check had room and was charged, where keys are sharded
		r.RetryAfter = 0
		r.ban(bannedUntil, now)
	}
}
