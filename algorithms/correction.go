package algorithms

import (
	"fmt"
)

// A correction is a charge that Settle corrects.
type correction struct {
	params
	charge
	check Check
	index int // among the results given to Settle
}

// prepareSettle picks the results that a store of this source charged and that
// are to cost something else.
func prepareSettle(cost int64, charged []Result, source Source) ([]correction, error) {
	if cost < 0 {
		return nil, fmt.Errorf("%w: settle: cost must not be negative, got %d", ErrInvalidCheck, cost)
	}
	var cs []correction
	for i := range charged {
		res := &charged[i]
		if res.Source != source || res.Charged <= 0 || res.Charged == cost {
			continue
		}
		if err := res.Check.Validate(); err != nil {
			return nil, err
		}
		p := paramsOf(&res.Check)
		cs = append(cs, correction{
			params: p,
			charge: charge{units: res.Charged, delta: cost - res.Charged, at: p.charged(res, &p), frac: res.fraction},
			check:  res.Check,
			index:  i,
		})
	}
	return cs, nil
}
