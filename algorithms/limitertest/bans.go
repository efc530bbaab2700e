package limitertest

import (
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

var banCases = []testCase{
	{name: "a check that has room counts no denial", run: bansOnlyDenied},
	{name: "a ban is of one rule and key", run: bansOfOne},
	{name: "a ban stays when the limit changes", run: bansOutliveLimits},
	{name: "a request is one denial, however many checks of the rule deny it", run: bansOncePerRequest},
	{name: "a request that a ban by hand denies charges nothing", run: banDenies},
	{name: "Settle refunds during a ban", run: settleBanned},
}

// banned is the outcome where the key is banned for some time more.
func (o outcome) banned(rest time.Duration) outcome {
	o.allowed, o.isBanned, o.charged, o.delay = false, true, 0, 0
	o.remaining = min(o.remaining, 0)
	o.retryAfter, o.resetAfter = max(o.retryAfter, rest), max(o.resetAfter, rest)
	return o
}

func bansOnlyDenied(c *trial) {
	c.eachSample(func(s sample) {
		check, beside := banning(s.Check, 2, 0, time.Hour), s.under("beside")
		c.take(costing(beside.Check, 10), s.charged(10, 10))
		for range 3 {
			c.takeAll(
				expectation{check, s.passed(0)},
				expectation{beside.Check, s.exhausted()})
		}
		c.take(check, s.charged(1, 1))
	})
}

func bansOfOne(c *trial) {
	c.eachSample(func(s sample) {
		check := banning(s.Check, 1, 0, time.Hour)
		otherRule, otherKey := check, check
		otherRule.Rule += " of another"
		otherKey.Key += " of another"
		c.ban(time.Hour, check)
		c.take(otherRule, s.charged(1, 1))
		c.take(otherKey, s.charged(1, 1))
		c.take(check, s.passed(0).banned(time.Hour))
	})
}

func bansOutliveLimits(c *trial) {
	c.eachSample(func(s sample) {
		check := banning(s.Check, 2, time.Hour, time.Hour)
		c.take(costing(check, 10), s.charged(10, 10))
		c.take(check, s.exhausted())
		other := limitedTo(check, fixed(3, 24*time.Hour))
		left := c.untilNext(24 * time.Hour)
		c.take(costing(other, 3), charged(3, 0, left))
		c.take(other, denied(0, left, left).banned(time.Hour)) // the second of the key
		c.take(check, s.exhausted().banned(time.Hour))
	})
}

// bansOncePerRequest has two windows of a rule, and another rule between them. The ban
// begins once, and denies by both.
func bansOncePerRequest(c *trial) {
	c.align(24*time.Hour, 0)
	day, between := banning(of(fixed(1, 24*time.Hour)), 3, time.Minute, 48*time.Hour), check("other", "key", fixed(9, 24*time.Hour))
	week := banning(of(fixed(1, 7*24*time.Hour)), 3, time.Minute, 48*time.Hour)
	inDay, inWeek := c.untilNext(24*time.Hour), c.untilNext(7*24*time.Hour)
	c.takeAll(expectation{day, charged(1, 0, inDay)}, expectation{between, charged(1, 8, inDay)}, expectation{week, charged(1, 0, inWeek)})
	noDay, noWeek, room := denied(0, inDay, inDay), denied(0, inWeek, inWeek), passed(8, inDay)
	for range 2 {
		c.takeAll(expectation{day, noDay}, expectation{between, room}, expectation{week, noWeek})
	}
	results := c.takeAll(expectation{day, noDay.banned(48 * time.Hour)}, expectation{between, room}, expectation{week, noWeek.banned(48 * time.Hour)})
	if results[0].BanBegan == results[2].BanBegan {
		c.Errorf("the ban began with %t and %t, want once", results[0].BanBegan, results[2].BanBegan)
	}
}

func banDenies(c *trial) {
	c.eachSample(func(s sample) {
		other := s.under("other").Check
		c.ban(time.Hour, s.Check, other)
		c.takeAll(
			expectation{s.under("free").Check, s.passed(0)},
			expectation{s.Check, s.passed(0).banned(time.Hour)},
			expectation{other, s.passed(0).banned(time.Hour)},
			expectation{shadowed(s.under("shadow").Check), s.passed(0)})
		c.holds(s.under("free").Check, 10, 0)
		c.holds(s.under("shadow").Check, 10, 0)
		c.ban(0, s.Check, other)
		c.take(s.Check, s.charged(1, 1))
		c.take(other, s.charged(1, 1))
	})
}

// settleBanned has a ban of the rule, and one by hand, during which a store may keep the
// count elsewhere.
func settleBanned(c *trial) {
	c.eachSample(func(s sample) {
		check, byHand := banning(s.Check, 1, 0, time.Second), s.under("by hand").Check
		charged := []algorithms.Result{
			c.take(costing(check, 10), s.charged(10, 10)),
			c.take(costing(byHand, 4), s.charged(4, 4)),
		}
		c.take(check, s.exhausted().banned(time.Second))
		c.ban(time.Second, byHand)
		results, err := c.limiter.Settle(c.Context(), charges(0, charged...)...)
		for i, r := range results {
			if err != nil || r.Charged != 0 || r.Remaining != 10 {
				c.Errorf("Settle of charge %d: %+v, %v", i, r, err)
			}
		}
		c.take(check, s.passed(0).banned(time.Second))
		c.wait(time.Second)
		c.take(check, s.charged(1, 1))
		c.holds(byHand, 10, 0)
	})
}
