package limitertest

import (
	"fmt"
	"math"
	"sync"

	"github.com/seed75154129/ratelimit/algorithms"
)

var settleCases = []testCase{
	{name: "Settle goes into the largest debts", run: settleLargest},
	{name: "Settle corrects every result of a request", run: settleRequest},
	{name: "Settle passes over what was charged nothing", run: settleUncharged},
	{name: "Settle settles all copies of a result as one charge", run: settleCopies},
	{name: "Settle at the same time with copies of a result gives it back once", run: settleCopiesRace},
	{name: "Settle to a negative cost is an error and changes no charge", run: settleNegative},
	{name: "Settle at the same time as others loses no correction", run: settleRace},
}

// settleLargest has debts that need not be exact.
func settleLargest(c *trial) {
	for _, units := range []int64{1_000_000, 1 << 53, math.MaxInt64} {
		c.eachSample(func(s sample) {
			s = s.under(fmt.Sprint("owes ", units))
			c.settleAll(units, c.take(s.Check, s.charged(1, 1)))
			d, err := c.limiter.Peek(c.Context(), s.Check)
			if err != nil || d.Allowed || d.Results[0].Remaining > -999_990 {
				c.Errorf("%s: charged %d: %+v, %v", s.Limit, units, d, err)
			}
		})
	}
}

func settleRequest(c *trial) {
	all := c.allSamples()
	var want []expectation
	for i, s := range all {
		c.take(costing(s.Check, 2), s.charged(2, 2))
		units := int64(3 + i%6) // of the eight that are left
		want = append(want, expectation{costing(s.Check, units), s.charged(units, units+2)})
	}
	shadow := all[0].under("in the shadow")
	want = append(want, expectation{shadowed(costing(shadow.Check, 6)), shadow.charged(6, 6)})
	full := all[0].under("full")
	c.take(costing(full.Check, 10), full.charged(10, 10))
	want = append(want, expectation{shadowed(full.Check), full.exhausted()})

	results := c.takeAll(want...)
	c.settleAll(4, results...) // more, the same and less
	for _, s := range all {
		c.holds(s.Check, 4, s.reset(6))
	}
	c.holds(shadow.Check, 6, shadow.reset(4))
	c.holds(full.Check, 0, full.reset(10))
}

func settleUncharged(c *trial) {
	all := c.allSamples()
	for _, s := range all {
		other := s.under("that denies")
		c.take(costing(s.Check, 4), s.charged(4, 4))
		c.take(costing(other.Check, 10), s.charged(10, 10))
		results := c.takeAll(expectation{s.Check, s.passed(4)}, expectation{other.Check, s.exhausted()})
		for _, units := range []int64{0, 1, 5} {
			c.settleAll(units, results...)
			c.settleAll(units)
		}
		c.holds(s.Check, 6, s.reset(4))
		c.holds(other.Check, 0, s.reset(10))
	}
}

func settleCopies(c *trial) {
	c.eachSample(func(s sample) {
		c.take(costing(s.Check, 3), s.charged(3, 3)) // of another
		r := c.take(costing(s.Check, 4), s.charged(4, 7))
		c.settleAll(2, r)
		c.settleCopy(2, 2, r)
		c.holds(s.Check, 5, s.reset(5))
		c.settleAll(1, r)
		c.holds(s.Check, 6, s.reset(4))
		c.settleAll(0, r)
		for _, cost := range []int64{0, 1, 4, 9} {
			c.settleCopy(cost, 0, r) // it has ended
		}
		c.holds(s.Check, 7, s.reset(3))

		r = c.take(costing(s.Check, 4), s.charged(4, 7))
		results, err := c.limiter.Settle(c.Context(), append(charges(1, r), charges(2, r)...)...)
		if err != nil || results[0].Charged != 1 || results[1].Charged != 2 {
			c.Errorf("Settle of two copies: %+v, %v", results, err)
		}
		c.holds(s.Check, 5, s.reset(5))
		c.settleAll(5, r)
		c.settleAll(1, results[0])
		c.settleCopy(1, 1, results[1])
		c.holds(s.Check, 6, s.reset(4))
	})
}

func settleCopiesRace(c *trial) {
	c.eachSample(func(s sample) {
		if s.queue {
			return // parts of a slot come back in their order only
		}
		c.take(costing(s.Check, 3), s.charged(3, 3)) // of another
		r := c.take(costing(s.Check, 4), s.charged(4, 7))
		var running sync.WaitGroup
		for cost := range int64(racers) {
			running.Go(func() {
				if _, err := c.limiter.Settle(c.Context(), charges(cost%2, r)...); err != nil {
					c.Error(err)
				}
			})
		}
		running.Wait()
		c.holds(s.Check, 7, s.reset(3)) // one of them was at 0
	})
}

func settleNegative(c *trial) {
	c.eachSample(func(s sample) {
		beside := s.under("beside")
		r := c.takeAll(expectation{costing(s.Check, 4), s.charged(4, 4)}, expectation{costing(beside.Check, 4), s.charged(4, 4)})
		for _, units := range []int64{-1, math.MinInt64} {
			results, err := c.limiter.Settle(c.Context(), append(charges(0, r[1]), charges(units, r[0])...)...)
			c.wantError("negative cost", err)
			if len(results) > 0 {
				c.Errorf("negative cost: %+v, want no results", results)
			}
		}
		c.holds(s.Check, 6, s.reset(4))
		c.holds(beside.Check, 6, s.reset(4))
	})
}

// settleRace gives back whatever was admitted: in the end, nothing is used.
func settleRace(c *trial) {
	c.eachSample(func(s sample) {
		if s.queue {
			return // only the last in it gives back
		}
		var running sync.WaitGroup
		for range racers {
			running.Go(func() {
				for range 4 {
					d, err := c.limiter.Take(c.Context(), costing(s.Check, 2))
					if err == nil {
						err = algorithms.Refund(c.Context(), c.limiter, d)
					}
					if err != nil {
						c.Error(err)
						return
					}
				}
			})
		}
		running.Wait()
		c.holds(s.Check, 10, 0)
	})
}
