package limitertest

import (
	"math"
	"sync/atomic"

	"github.com/seed75154129/ratelimit/algorithms"
)

var atLeastCases = []testCase{
	{name: "AtLeast takes what is left, up to the cost", run: atLeastTakes},
	{name: "AtLeast takes of all checks what the least of them has left", run: atLeastOfAll},
	{name: "a shadow check with AtLeast is charged no more than it has left", run: atLeastInShadow},
	{name: "AtLeast at the same time takes exactly what there is", run: atLeastRace},
	{name: "an invalid AtLeast is an error and charges nothing", run: invalidAtLeast},
}

// partOf is a check that takes from least to most units.
func partOf(c algorithms.Check, least, most int64) algorithms.Check {
	c.AtLeast, c.Cost = least, most
	return c
}

func atLeastTakes(c *trial) {
	c.eachSample(func(s sample) {
		if s.queue {
			return
		}
		c.take(partOf(s.Check, 2, 3), s.charged(3, 3))
		c.take(partOf(s.Check, 3, 3), s.charged(3, 6))
		c.peek(partOf(s.Check, 2, 30), s.passed(6))
		r := c.take(partOf(s.Check, 2, 30), s.charged(4, 10))
		c.take(partOf(s.Check, 1, 30), s.exhausted())
		c.settleAll(3, r) // one is left
		c.take(partOf(s.Check, 2, 30), s.denied(9, 2))
		c.peek(partOf(s.Check, 2, 30), s.denied(9, 2))
		c.take(partOf(s.Check, 1, 2), s.charged(1, 10))

		s = s.under("unused")
		c.take(partOf(s.Check, 11, 12), denied(10, algorithms.Never, 0))
		c.settleAll(0, c.take(partOf(s.Check, 10, math.MaxInt64), s.charged(10, 10)))
		c.holds(s.Check, 10, 0)
	})
}

// atLeastOfAll lets each algorithm have the least left, beside a check without AtLeast.
func atLeastOfAll(c *trial) {
	all := c.allSamples()
	for least := range all {
		var want, denied []expectation
		for i, s := range all {
			s = s.under(all[least].Key + " has the least")
			used := int64(i % 3)
			if i == least {
				used = 7
			}
			if used > 0 {
				c.take(costing(s.Check, used), s.charged(used, used))
			}
			switch {
			case s.queue && i == least: // too little for itself
				want = append(want, expectation{costing(s.Check, 3), s.charged(3, 10)})
				denied = append(denied, expectation{costing(s.Check, 3), s.denied(10, 3)})
			case s.queue:
				want = append(want, expectation{s.Check, s.charged(1, used+1)})
				denied = append(denied, expectation{s.Check, s.passed(used + 1)})
			default:
				grant := int64(3)
				if all[least].queue {
					grant = 8
				}
				want = append(want, expectation{partOf(s.Check, 2, 8), s.charged(grant, used+grant)})
				denied = append(denied, expectation{partOf(s.Check, 2, 8), s.passed(used + grant)})
				if used+grant > 8 {
					denied[i].outcome = s.denied(used+grant, 2)
				}
			}
		}
		c.takeAll(want...)
		c.takeAll(denied...)
	}
}

func atLeastInShadow(c *trial) {
	c.eachSample(func(s sample) {
		if s.queue {
			return
		}
		some, none := s.under("some"), s.under("none")
		c.take(costing(some.Check, 7), s.charged(7, 7))
		c.take(costing(none.Check, 9), s.charged(9, 9))
		c.takeAll(
			expectation{partOf(shadowed(some.Check), 2, 5), s.charged(3, 10)},
			expectation{partOf(s.Check, 2, 5), s.charged(5, 5)},
			expectation{partOf(shadowed(none.Check), 2, 5), s.denied(9, 2)})
	})
}

// atLeastRace lets workers share ten units.
func atLeastRace(c *trial) {
	c.eachSample(func(s sample) {
		if s.queue {
			return
		}
		var taken atomic.Int64
		c.raceWith(5, func(int, int) bool {
			d, err := c.limiter.Take(c.Context(), partOf(s.Check, 1, 3))
			if err != nil {
				c.Errorf("Take: %v", err)
				return false
			}
			taken.Add(d.Results[0].Charged)
			return d.Allowed
		})
		if n := taken.Load(); n != 10 {
			c.Errorf("%s: %d units taken, want 10", name(s.Check), n)
		}
		c.take(s.Check, s.exhausted())
	})
}

func invalidAtLeast(c *trial) {
	c.refused("AtLeast of requests in flight", partOf(of(algorithms.MaxInFlight(5)), 1, 1))
	c.eachSample(func(s sample) {
		if s.queue {
			c.refused("AtLeast of a queue", partOf(s.Check, 1, 2))
			return
		}
		other := s.under("other").Check
		c.refused("negative AtLeast", partOf(s.Check, -1, 2))
		c.refused("AtLeast above the cost", partOf(s.Check, 3, 2))
		c.refused("two of AtLeast", partOf(s.Check, 1, 3), partOf(other, 2, 3))
		leased := partOf(s.Check, 1, 2)
		leased.Lease = true
		c.refused("AtLeast of a lease", leased)
		if s.Limit.Algorithm == algorithms.FixedWindow {
			c.refused("AtLeast of a soft limit", limitedTo(partOf(s.Check, 1, 2), soft(s.Limit)))
		}
		c.refused("two costs", partOf(s.Check, 1, 3), partOf(shadowed(other), 1, 2))
		c.holds(s.Check, 10, 0)
	})
}
