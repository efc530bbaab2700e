package limitertest

import "github.com/seed75154129/ratelimit/algorithms"

var shadowCases = []testCase{
	{name: "a shadow check is not charged when an enforced one denies", run: shadowNotCharged},
	{name: "a shadow check changes no enforced outcome", run: shadowChangesNothing},
}

func shadowNotCharged(c *trial) {
	c.eachSample(func(s sample) {
		enforced, shadow := s.under("enforced"), shadowed(s.Check)
		c.take(costing(enforced.Check, 10), s.charged(10, 10))
		c.takeAll(expectation{shadow, s.passed(0)}, expectation{enforced.Check, s.exhausted()})
		c.takeAll(expectation{enforced.Check, s.exhausted()}, expectation{shadow, s.passed(0)})
		c.take(shadow, s.charged(1, 1))
		c.takeAll(expectation{shadow, s.passed(1)}, expectation{enforced.Check, s.exhausted()})
		c.take(shadow, s.charged(1, 2))
	})
}

// shadowChangesNothing takes the same as a twin without shadow checks, with
// one that has room and one that has none.
func shadowChangesNothing(c *trial) {
	c.eachSample(func(s sample) {
		open, full := s.under("shadow with room"), s.under("shadow without room")
		above := shadowed(costing(s.under("shadow above the quota").Check, 11))
		c.take(costing(full.Check, 10), s.charged(10, 10))
		enforced, other := s.under("enforced"), s.under("enforced too")
		for n := range int64(10) {
			c.takeAll(
				expectation{shadowed(full.Check), s.exhausted()},
				expectation{above, denied(10, algorithms.Never, 0)},
				expectation{enforced.Check, s.charged(1, n+1)},
				expectation{shadowed(open.Check), s.charged(1, n+1)},
				expectation{other.Check, s.charged(1, n+1)})
		}
		c.takeAll(
			expectation{shadowed(full.Check), s.exhausted()},
			expectation{enforced.Check, s.exhausted()},
			expectation{shadowed(open.Check), s.exhausted()},
			expectation{other.Check, s.exhausted()})
	})
}
