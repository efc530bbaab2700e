package algorithms

import (
	"errors"
	"fmt"
	"time"
)

// A placed is where a charge is to be found in a state: the start of the
// window, or the time of the entry, of the charge or of the slot that it has;
// and of a slot the fraction of that microsecond, over the rate.
type placed struct{ at, frac int64 }

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
			params: paramsOf(&res.Check),
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
func (c *correction) settle(s state, mended bool, now int64) (settled state, changed bool) {
	if mended && c.delta < 0 {
		return s, true // nothing of the charge is in it
	}
	settled = c.correct(s, now, &c.params, c)
	return settled, mended || settled.a != s.a || settled.b != s.b || settled.c != s.c
}

// answer makes the result say what it costs now, by the state of its key.
func (c *correction) answer(s state, now int64) {
	r := c.result
	r.Charged, r.At, r.charge = r.Charged+c.delta, time.UnixMicro(now), placed{}
	c.params.answer(r, s, now)
	if r.Charged == 0 {
		return
	}
	if r.charge = c.placed; c.queue { // its slot is where it was
		r.Delay = micros(max(c.at-now, 0))
	}
}
