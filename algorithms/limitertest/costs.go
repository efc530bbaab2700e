package limitertest

import (
	"math"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

var costCases = []testCase{
	{name: "a cost above 1 takes that many units or none", run: costTakesUnits},
	{name: "a cost of 0 means 1", run: costZero},
	{name: "a cost of the whole quota is admitted once", run: costQuota},
	{name: "a cost above the quota is never admitted and charges nothing", run: costAboveQuota},
}

func costTakesUnits(c *trial) {
	c.eachSample(func(s sample) {
		three := costing(s.Check, 3)
		c.take(three, s.charged(3, 3))
		c.take(three, s.charged(3, 6))
		c.take(three, s.charged(3, 9))
		c.take(three, s.denied(9, 3))
		c.take(three, s.denied(9, 3))
		c.take(s.Check, s.charged(1, 10))
	})
}

func costZero(c *trial) {
	c.eachSample(func(s sample) {
		for n := range int64(10) {
			c.take(costing(s.Check, 0), s.charged(1, n+1))
		}
		c.take(costing(s.Check, 0), s.exhausted())
	})
}

func costQuota(c *trial) {
	c.eachSample(func(s sample) {
		c.take(costing(s.Check, 10), s.charged(10, 10))
		c.take(s.Check, s.exhausted())
	})
	check := of(tokenBucket(2, time.Second, 6)) // its quota is the burst
	c.take(costing(check, 6), charged(6, 0, 3*time.Second))
	c.take(check, denied(0, 500*time.Millisecond, 3*time.Second))
}

func costAboveQuota(c *trial) {
	c.eachSample(func(s sample) {
		for _, units := range []int64{11, 1_000_000, 1 << 53, math.MaxInt64} {
			c.take(costing(s.Check, units), denied(10, algorithms.Never, 0))
		}
		c.take(costing(s.Check, 4), s.charged(4, 4))
		c.take(costing(s.Check, 11), denied(6, algorithms.Never, s.reset(4)))
		c.take(costing(s.Check, 6), s.charged(6, 10))
		c.take(costing(s.Check, 11), denied(0, algorithms.Never, s.reset(10)))
	})
	check := of(tokenBucket(20, time.Second, 6))
	c.take(costing(check, 7), denied(6, algorithms.Never, 0))
}
