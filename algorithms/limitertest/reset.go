package limitertest

import (
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

var resetCases = []testCase{
	{name: "Reset forgets what was used", run: resetForgets},
	{name: "Reset forgets only the checks named", run: resetOnlyNamed},
	{name: "Reset forgets a count whatever its rate and cost are now", run: resetOtherRate},
	{name: "Reset refuses invalid checks", run: resetRefuses},
}

func (c *trial) reset(checks ...algorithms.Check) {
	c.Helper()
	if err := c.limiter.Reset(c.Context(), checks...); err != nil {
		c.Fatalf("Reset%v: %v", names(checks), err)
	}
}

func resetForgets(c *trial) {
	c.eachSample(func(s sample) {
		c.take(costing(s.Check, 10), s.charged(10, 10))
		c.reset(s.Check)
		c.holds(s.Check, 10, 0)
		c.take(costing(s.Check, 10), s.charged(10, 10))
		c.take(s.Check, s.exhausted())
	})
	var all []algorithms.Check
	for _, s := range c.allSamples() {
		s = s.under("all at once")
		c.take(costing(s.Check, 10), s.charged(10, 10))
		all = append(all, s.Check)
	}
	c.reset(all...)
	for _, check := range all {
		c.holds(check, 10, 0)
	}
}

func resetOnlyNamed(c *trial) {
	c.eachSample(func(s sample) {
		otherRule, otherKey := s.under("another").Check, s.Check
		otherKey.Key += " of another"
		otherPeriod := limitedTo(s.Check, fixed(10, time.Hour))
		c.take(s.Check, s.charged(1, 1))
		c.take(otherRule, s.charged(1, 1))
		c.take(otherKey, s.charged(1, 1))
		c.take(otherPeriod, charged(1, 9, c.untilNext(time.Hour)))
		c.reset(s.Check)
		c.reset() // nothing
		c.holds(s.Check, 10, 0)
		c.holds(otherRule, 9, s.reset(1))
		c.holds(otherKey, 9, s.reset(1))
		c.holds(otherPeriod, 9, c.untilNext(time.Hour))
	})
}

func resetOtherRate(c *trial) {
	c.eachSample(func(s sample) {
		c.take(s.Check, s.charged(1, 1))
		other := shadowed(costing(s.Check, 7))
		other.Limit.Rate = 1000
		c.reset(other)
		c.holds(s.Check, 10, 0)
	})
}

func resetRefuses(c *trial) {
	c.eachSample(func(s sample) {
		c.take(s.Check, s.charged(1, 1))
		err := c.limiter.Reset(c.Context(), s.Check, limitedTo(s.under("another").Check, algorithms.Limit{}))
		c.wantError("the zero limit", err)
		err = c.limiter.Reset(c.Context(), costing(s.Check, -1))
		c.wantError("negative cost", err)
		c.holds(s.Check, 9, s.reset(1))
	})
}
