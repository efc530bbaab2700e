package algorithms

import (
	"errors"
	"fmt"
	"time"
)

// A correction is a charge that Settle corrects.
type correction struct {
	params
	placed
	units  int64   // what was charged
	delta  int64   // by how much to correct it: negative gives back
	result *Result // what Settle returns of it
}

// prepareSettle returns a copy of the charges' results, for Settle to return,
// and the corrections of those that a store of this source charged and that are
// to cost something else.
func prepareSettle(charges []Charge, source Source) ([]Result, []correction, error) {
	results := make([]Result, len(charges))
	var cs []correction
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
		cs = append(cs, correction{
			params: paramsOf(&res.Check, res.Check.Limit.row()),
			placed: res.charge,
			units:  res.Charged,
			delta:  cost - res.Charged,
			result: res,
		})
	}
	return results, cs, errors.Join(errs...)
}

// settle corrects a charge in what at returned. Without a change there is
// nothing to write.
func (c *correction) settle(s state, healed bool, now int64) (settled state, changed bool) {
	if healed && c.delta < 0 {
		return s, true // nothing of the charge is in it
	}
	settled = c.step.correct(s, now, c)
	return settled, healed || settled.a != s.a || settled.b != s.b || settled.c != s.c
}

// answer makes the result say what it costs now, by the state of its key.
func (c *correction) answer(s state, now int64) {
	r := c.result
	bannedUntil := r.At.Add(r.bannedFor).UnixMicro()
	if r.banBegins {
		bannedUntil = -bannedUntil
	}
	r.Charged, r.At, r.charge = r.Charged+c.delta, time.UnixMicro(now), placed{}
	r.hold(s, &c.params)
	_, where, _ := c.params.take(s, now)
	if r.Charged > 0 { // its slot is where it was
		r.charge, where = c.placed, c.placed
	}
	remaining, resetAfter := c.step.left(s, now, c.params)
	r.Remaining, r.ResetAfter = remaining, micros(resetAfter)
	if c.queue {
		r.Delay = micros(max(where.at-now, 0))
	}
	if r.Banned { // the check had room and was charged, where keys are sharded
		r.RetryAfter = 0
		r.ban(bannedUntil, now)
	}
}
