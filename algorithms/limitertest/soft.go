package limitertest

import (
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

var softCases = []testCase{
	{name: "a soft check is charged beyond its limit and denies nothing", run: softChargesBeyond},
	{name: "a soft check is charged nothing when another one denies", run: softNotCharged},
	{name: "a soft check in shadow is a shadow check", run: softInShadow},
	{name: "a limit that becomes soft, or is no longer, keeps its count", run: softKeepsItsCount},
	{name: "a cost above a soft limit is charged whole", run: softAboveQuota},
	{name: "a ban by hand denies a soft check", run: softBanned},
	{name: "Settle refunds what a soft check was charged beyond its limit", run: softSettled},
}

func soft(l algorithms.Limit) algorithms.Limit {
	l.Soft = true
	return l
}

// eachWindow runs f for the samples that can be soft, with the soft check.
func (c *trial) eachWindow(f func(s sample, soft algorithms.Check)) {
	for _, s := range samples[:2] {
		c.align(time.Second, 250*time.Millisecond)
		f(s, limitedTo(s.Check, soft(s.Limit)))
	}
}

// beyond is the outcome of a soft check that was charged beyond its limit, when so many
// units are used then.
func (s sample) beyond(units, used int64) outcome {
	o := s.denied(used, units)
	o.charged = units
	return o
}

func softChargesBeyond(c *trial) {
	c.eachWindow(func(s sample, soft algorithms.Check) {
		hard := s.under("hard")
		c.take(costing(soft, 10), s.charged(10, 10))
		c.peek(soft, s.exhausted())
		c.take(soft, s.beyond(1, 11))
		c.takeAll(expectation{hard.Check, s.charged(1, 1)}, expectation{soft, s.beyond(1, 12)})
		c.peekAll(expectation{soft, s.denied(12, 1)}, expectation{hard.Check, s.passed(1)})
		c.wait(2 * time.Second)
		c.take(soft, s.charged(1, 1))
	})
}

func softNotCharged(c *trial) {
	c.eachWindow(func(s sample, soft algorithms.Check) {
		hard, free := s.under("hard"), soft
		free.Rule = "with room"
		c.takeAll(expectation{costing(soft, 11), s.above(11)}, expectation{costing(hard.Check, 10), s.charged(10, 10)})
		for range 2 {
			c.takeAll(expectation{soft, s.denied(11, 1)}, expectation{hard.Check, s.exhausted()}, expectation{free, s.passed(0)})
		}
		c.peek(soft, s.denied(11, 1))
		c.take(free, s.charged(1, 1))
	})
}

func softInShadow(c *trial) {
	c.eachWindow(func(s sample, soft algorithms.Check) {
		soft = shadowed(soft)
		c.take(costing(soft, 10), s.charged(10, 10))
		c.take(soft, s.exhausted())
		c.take(soft, s.exhausted())
		c.take(costing(soft, 11), denied(0, algorithms.Never, s.reset(10)))
	})
}

func softKeepsItsCount(c *trial) {
	c.eachWindow(func(s sample, soft algorithms.Check) {
		c.take(costing(s.Check, 9), s.charged(9, 9))
		c.take(soft, s.charged(1, 10))
		c.take(soft, s.beyond(1, 11))
		c.take(s.Check, s.denied(11, 1))
		c.take(soft, s.beyond(1, 12))
		c.wantErrors("a soft and a hard limit on one count", c.limiter.Take, []algorithms.Check{s.Check, soft})
	})
}

// above is the outcome of a cost above the limit that a soft check was charged.
func (s sample) above(units int64) outcome {
	o := denied(10-units, algorithms.Never, s.reset(units))
	o.charged = units
	return o
}

func softAboveQuota(c *trial) {
	c.eachWindow(func(s sample, soft algorithms.Check) {
		peeked := s.above(25)
		peeked.charged, peeked.remaining, peeked.resetAfter = 0, 10, 0
		c.peek(costing(soft, 25), peeked)
		c.take(costing(soft, 25), s.above(25))
		c.take(s.Check, s.denied(25, 1))
		c.take(soft, s.beyond(1, 26))
	})
}

func softBanned(c *trial) {
	c.eachWindow(func(s sample, soft algorithms.Check) {
		c.take(costing(soft, 11), s.above(11))
		c.ban(time.Minute, soft)
		c.take(soft, s.denied(11, 1).banned(time.Minute))
		c.ban(0, soft)
		c.take(soft, s.beyond(1, 12))
	})
}

func softSettled(c *trial) {
	c.eachWindow(func(s sample, soft algorithms.Check) {
		c.take(costing(soft, 10), s.charged(10, 10))
		over := c.take(costing(soft, 5), s.beyond(5, 15))
		over = c.settle(2, over, s.charged(2, 12))
		c.settle(0, over, s.charged(0, 10))
		c.take(soft, s.beyond(1, 11))
	})
}
