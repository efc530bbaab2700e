package algorithms

import (
	"errors"
	"fmt"
	"math/bits"
	"time"
)

// Validate reports everything that is wrong with the check, or nil. Its errors
// wrap [ErrInvalidCheck].
func (c Check) Validate() error {
	var errs []error
	bad := func(err error) { errs = append(errs, fmt.Errorf("%w: rule %q: %w", ErrInvalidCheck, c.Rule, err)) }
	if err := c.Limit.Validate(); err != nil {
		bad(err)
	}
	if c.Cost < 0 {
		bad(fmt.Errorf("cost must not be negative, got %d", c.Cost))
	}
	if c.MaxDelay < 0 {
		bad(fmt.Errorf("max delay must not be negative, got %s", c.MaxDelay))
	}
	if err := c.badLease(); err != nil {
		bad(err)
	}
	if c.Ban != (Ban{}) {
		for _, err := range c.Ban.invalid() {
			bad(fmt.Errorf("ban: %w", err))
		}
	}
	return errors.Join(errs...)
}

// params are a check's numbers, as both twins of its step need them. Bucket
// times are in two parts: whole microseconds and a fraction over the rate.
type params struct {
	*algorithm
	rate, period int64 // units and µs
	cost         int64 // at least 1; above the quota it is the quota + 1, which no state admits
	never        bool  // the cost is above the quota
	costW, costF int64 // buckets: time that the cost takes to refill
	fullW, fullF int64 // buckets: time that the whole bucket takes to refill
	roomW, roomF int64 // buckets: how far ahead of now TAT may be after the charge

	bound *bound // whose numbers these are; nil if they were changed, or belong to nobody else
}

// ok is Validate without the reasons, for every decision.
func (c *Check) ok(row *algorithm) bool {
	return c.Limit.okFor(row) && c.okBeside()
}

// okBeside is ok for all but the limit.
func (c *Check) okBeside() bool {
	return c.Cost >= 0 && c.MaxDelay >= 0 && c.Ban.ok() && (!c.Lease || c.badLease() == nil)
}

// badLease says why units cannot be taken in blocks.
func (c *Check) badLease() error {
	switch row := c.Limit.row(); {
	case !c.Lease || row == nil:
		return nil
	case !row.aligned:
		return fmt.Errorf("lease: only %s and %s grant blocks, not %s", FixedWindow, SlidingWindow, row.name)
	case c.Ban != (Ban{}):
		return errors.New("lease: not with a ban, since who is denied here is not counted in the store")
	case c.NoCache:
		return errors.New("lease: not with NoCache, since units of a block are not given back one by one")
	}
	return nil
}

// prepare validates the checks and computes their numbers. Room for four lets
// the usual request go without an allocation.
func prepare(checks []Check, room *[4]params) ([]params, error) {
	ps := room[:0]
	for i := range checks {
		c := &checks[i]
		p, ok := c.numbers()
		if !ok {
			return nil, c.Validate()
		}
		for j := range checks[:i] {
			if sameCount(c, &checks[j], p.algorithm, ps[j].algorithm) {
				return nil, fmt.Errorf("%w: rule %q: checks %d and %d of one call have the same rule and key", ErrInvalidCheck, c.Rule, j, i)
			}
		}
		ps = append(ps, p)
	}
	return ps, nil
}

// sameCount reports whether two checks share one count.
func sameCount(a, b *Check, rowA, rowB *algorithm) bool {
	return a.Rule == b.Rule && a.Key == b.Key && a.Limit.Period == b.Limit.Period && rowA == rowB
}

// paramsOf computes the numbers of a valid check.
func paramsOf(c *Check, row *algorithm) params {
	p := params{algorithm: row, rate: c.Limit.Rate, period: c.Limit.Period.Microseconds()}
	quota := c.Limit.quota(row)
	if row.bucket {
		p.fullW, p.fullF = p.refill(quota)
	}
	cost := max(c.Cost, 1)
	p.never = cost > quota
	p.setCost(min(cost, quota+1))
	if row.queue && c.MaxDelay > 0 {
		p.wait(c.MaxDelay.Microseconds())
	}
	return p
}

// spare is how far ahead TAT may be for a queue to have room but for MaxDelay; -1
// for other algorithms, and where nothing could have room.
func (p *params) spare() (w, f int64) {
	if w, f = p.fullW-p.costW, p.fullF-p.costF; f < 0 {
		w, f = w-1, f+p.rate
	}
	if !p.queue || w < 0 {
		return -1, 0
	}
	return w, f
}

// setCost sets the cost.
func (p *params) setCost(units int64) {
	p.bound = nil
	if p.cost = units; p.bucket {
		p.costW, p.costF = p.refill(units)
		p.roomW, p.roomF = p.fullW, p.fullF
	}
}

// wait bounds how far ahead the slot may begin: that bounds where it ends, too.
func (p *params) wait(most int64) {
	p.bound = nil
	most = min(most, maxDuration)
	if w := most + p.costW; w < p.roomW || w == p.roomW && p.costF < p.roomF {
		p.roomW, p.roomF = w, p.costF
	}
}

// refill is the time that a bucket takes to refill these units, as far as the
// exact range goes.
func (p *params) refill(units int64) (w, f int64) {
	hi, lo := bits.Mul64(uint64(units), uint64(p.period))
	if hi >= uint64(p.rate) {
		return maxDuration, 0
	}
	q, r := bits.Div64(hi, lo, uint64(p.rate))
	if q >= maxDuration {
		return maxDuration, 0
	}
	return int64(q), int64(r)
}

// micros converts, and takes what a Duration cannot hold for Never.
func micros(us int64) time.Duration {
	if us > int64(Never/time.Microsecond) {
		return Never
	}
	return time.Duration(us) * time.Microsecond
}
