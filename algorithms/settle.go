package algorithms

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed75154129/ratelimit/internal/step"
)

// Refund makes the charges of d cost nothing, for work that was not done: all charges or,
// if rules are named, only theirs. It replaces d's results by those that [Limiter.Settle]
// returns. A charge that cannot be refunded stays, which errs towards denying. The end of
// ctx does not stop Refund.
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

// setCharged sets what the charge costs, and with it what of it is counted locally.
func (r *Result) setCharged(units int64) {
	if r.Trace.Followed != 0 {
		r.Trace.Followed = max(r.Trace.Followed+units-r.Charged, 0)
	}
	r.Charged = units
}

// A settlement is a correction and its result.
type settlement struct {
	step.Correction
	result *Result // what Settle returns of it
}

// prepareSettle returns the charges' results, for Settle to return, and the corrections
// of those charges that a store of this source, or a copy of its state, made and that are to
// cost something else.
// If a charge is invalid, it prepares nothing.
func prepareSettle(charges []Charge, source Source) ([]Result, []settlement, error) {
	results := make([]Result, len(charges))
	var cs []settlement
	var errs []error
	for i := range charges {
		res, cost := &results[i], charges[i].Cost
		*res = charges[i].Result
		if err := charges[i].Validate(); err != nil {
			errs = append(errs, err)
		} else if (res.Source == source || res.Source == SourceSync) && res.Charged > 0 && res.Charged != cost {
			c := step.Correction{Placed: res.Trace.Charge, Units: res.Charged, Delta: cost - res.Charged}
			res.Check.numbers(&c.Params)
			c.ID = res.Trace.Charge.At // where it is one
			cs = append(cs, settlement{c, res})
		}
	}
	if errs != nil {
		return nil, nil, errors.Join(errs...)
	}
	return results, cs, nil
}

// Validate reports why the charge cannot be settled, or nil. Its errors wrap [ErrInvalidCheck].
func (c *Charge) Validate() error {
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

// answer updates the result from the state of its key after the correction.
func (c *settlement) answer(s step.State, now int64) {
	r := c.result
	r.setCharged(c.Units + c.Delta)
	r.At, r.Err = time.UnixMicro(now), nil
	if r.Trace.Known = !c.Summary; r.Trace.Known {
		r.Trace.State = s.Numbers()
	}
	_, where, _ := c.Params.Take(s, now)
	switch {
	case r.Charged == 0:
		r.Trace.Charge = step.Placed{}
	case c.Delta > 0 && c.Full(s): // how much of the rise is counted is unknown: nothing is refunded from there
		r.Trace.Charge = step.Placed{At: step.MaxDuration}
	default: // its slot is where it was
		where = c.Placed
	}
	var a step.Answer
	c.Params.Answer(&a, true, &s, where, now)
	r.Remaining, r.ResetAfter = a.Remaining, a.ResetAfter
	if c.Queue {
		r.Delay = max(a.Delay, 0)
	}
}
