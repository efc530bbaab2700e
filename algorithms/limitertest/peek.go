package limitertest

import "github.com/seed75154129/ratelimit/algorithms"

var peekCases = []testCase{
	{name: "Peek charges nothing and decides as Take then does", run: peekDecidesAsTake},
	{name: "Peek decides several checks and shadow checks as Take then does", run: peekSeveral},
	{name: "Peek refuses what Take refuses", run: peekRefuses},
}

func peekDecidesAsTake(c *trial) {
	c.eachSample(func(s sample) {
		for n := range int64(10) {
			c.peek(s.Check, s.passed(n))
			c.take(s.Check, s.charged(1, n+1))
		}
		above := costing(s.Check, 11)
		for range 2 {
			c.peek(s.Check, s.exhausted())
			c.take(s.Check, s.exhausted())
			c.peek(above, denied(0, algorithms.Never, s.reset(10)))
			c.take(above, denied(0, algorithms.Never, s.reset(10)))
		}
		retry := s.retry(10, 1)
		c.wait(retry - 1*µs)
		c.peek(s.Check, denied(0, 1*µs, s.reset(10)-retry+1*µs))
		c.wait(1 * µs)
		if s.atOnce {
			c.peek(s.Check, passed(10, 0))
		} else {
			c.peek(s.Check, passed(1, s.reset(10)-retry).delayed(s.delay(9)))
		}
	})
}

func peekSeveral(c *trial) {
	c.peekAll()
	all := c.allSamples()
	var want []expectation
	for _, s := range all {
		want = append(want, expectation{s.Check, s.passed(0)})
	}
	c.peekAll(want...)

	// A shadow check that is exhausted does not deny, an enforced one does.
	first := all[0]
	c.take(costing(first.Check, 10), first.charged(10, 10))
	want[0] = expectation{shadowed(first.Check), first.exhausted()}
	c.peekAll(want...)
	want[0] = expectation{first.Check, first.exhausted()}
	c.peekAll(want...)
	c.takeAll(want...)
	c.peekAll(want...)
}

func peekRefuses(c *trial) {
	for _, s := range c.allSamples() {
		c.wantErrors("negative cost", c.limiter.Peek, []algorithms.Check{costing(s.Check, -1)})
		c.wantErrors("a check twice", c.limiter.Peek, []algorithms.Check{s.Check, s.Check})
		c.wantErrors("the zero limit", c.limiter.Peek, []algorithms.Check{limitedTo(s.Check, algorithms.Limit{})})
	}
}
