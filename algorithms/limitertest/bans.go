package limitertest

import (
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

var banCases = []testCase{
	{name: "a key that is denied After times is banned", run: bansAfter},
	{name: "denials during a ban do not extend it", run: banNotExtended},
	{name: "denials count towards a ban if they come Within the first", run: bansWithin},
	{name: "a ban's Within is the limit's period if it is 0", run: bansWithinPeriod},
	{name: "Peek counts no denial and sees a ban", run: peekBans},
	{name: "a check that has room counts no denial", run: bansOnlyDenied},
	{name: "a shadow check is not banned and counts no denial", run: shadowNotBanned},
	{name: "denials for MaxDelay alone do not count towards a ban", run: impatientNotBanned},
	{name: "a denial for ever counts towards a ban", run: bansForever},
	{name: "a ban is of one rule and key", run: bansOfOne},
	{name: "a ban stays when the limit changes", run: bansOutliveLimits},
	{name: "a request is one denial, however many checks of the rule deny it", run: bansOncePerRequest},
	{name: "two bans on one key obey each other", run: twoBans},
	{name: "Reset lifts a ban and forgets denials", run: resetLifts},
}

// banned is the outcome where the key is banned for some time more.
func (o outcome) banned(rest time.Duration) outcome {
	o.allowed, o.isBanned, o.charged, o.delay = false, true, 0, 0
	o.remaining = min(o.remaining, 0)
	o.retryAfter, o.resetAfter = max(o.retryAfter, rest), max(o.resetAfter, rest)
	return o
}

// banning is a check with a ban.
func banning(c algorithms.Check, after int64, within, length time.Duration) algorithms.Check {
	c.Ban = algorithms.Ban{After: after, Within: within, For: length}
	return c
}

func bansAfter(c *trial) {
	c.eachSample(func(s sample) {
		check := banning(s.Check, 3, time.Minute, time.Hour)
		c.take(costing(check, 10), s.charged(10, 10))
		c.take(check, s.exhausted())
		c.take(check, s.exhausted())
		c.take(check, s.exhausted().banned(time.Hour))
		c.wait(time.Minute)
		c.take(check, s.passed(0).banned(59*time.Minute))
		c.wait(59*time.Minute - 1*µs)
		c.take(check, s.passed(0).banned(1*µs))
		c.wait(1 * µs)
		c.align(time.Second, 250*time.Millisecond)
		c.take(costing(check, 10), s.charged(10, 10))
		c.take(check, s.exhausted()) // counted anew
		c.take(check, s.exhausted())
		c.take(check, s.exhausted().banned(time.Hour))
	})
}

// banNotExtended also has a ban that ends before there is room.
func banNotExtended(c *trial) {
	c.eachSample(func(s sample) {
		check := banning(s.Check, 1, time.Minute, 10*time.Millisecond)
		c.take(costing(check, 10), s.charged(10, 10))
		c.take(check, s.exhausted().banned(10*time.Millisecond))
		for ms := 1; ms < 10; ms++ {
			c.wait(time.Millisecond)
			passed := time.Duration(ms) * time.Millisecond
			c.take(check, s.after(passed).exhausted().banned(10*time.Millisecond-passed))
		}
		c.wait(time.Millisecond)
		c.take(check, s.after(10*time.Millisecond).exhausted().banned(10*time.Millisecond)) // the next one
	})
}

func bansWithin(c *trial) {
	c.align(time.Hour, 0)
	check := banning(of(fixed(1, time.Hour)), 3, 10*time.Second, 20*time.Second)
	c.take(check, charged(1, 0, time.Hour))
	left := func() time.Duration { return c.untilNext(time.Hour) }
	no := func() outcome { return denied(0, left(), left()) }
	c.take(check, no())
	c.wait(10*time.Second - 1*µs)
	c.take(check, no())
	c.wait(1 * µs)
	c.take(check, no()) // the first of the next
	c.wait(5 * time.Second)
	c.take(check, no())
	c.wait(5*time.Second - 1*µs)
	c.take(check, no().banned(20*time.Second))

	c.align(time.Hour, 0)
	check = banning(of(limit("1/1h burst 1")), 2, 1*µs, time.Minute)
	c.take(check, charged(1, 0, time.Hour))
	c.take(check, denied(0, time.Hour, time.Hour))
	c.wait(1 * µs)
	c.take(check, denied(0, time.Hour-1*µs, time.Hour-1*µs))
	c.take(check, denied(0, time.Hour-1*µs, time.Hour-1*µs).banned(time.Minute))
}

func bansWithinPeriod(c *trial) {
	c.align(time.Hour, 0)
	check := banning(of(limit("1/1h burst 1")), 2, 0, 3*time.Hour)
	c.take(check, charged(1, 0, time.Hour))
	c.take(check, denied(0, time.Hour, time.Hour))
	c.wait(time.Hour)
	c.take(check, charged(1, 0, time.Hour))
	c.take(check, denied(0, time.Hour, time.Hour)) // the other one was a period ago
	c.wait(time.Hour - 1*µs)
	c.take(check, denied(0, 1*µs, 1*µs).banned(3*time.Hour))
}

func peekBans(c *trial) {
	c.eachSample(func(s sample) {
		check := banning(s.Check, 2, 0, time.Hour)
		c.take(costing(check, 10), s.charged(10, 10))
		c.take(check, s.exhausted())
		for range 3 {
			c.peek(check, s.exhausted())
		}
		c.take(check, s.exhausted().banned(time.Hour))
		c.peek(check, s.exhausted().banned(time.Hour))
		c.wait(time.Hour - 1*µs)
		c.peek(check, s.passed(0).banned(1*µs))
		c.wait(1 * µs)
		c.peek(check, s.passed(0))
	})
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

func shadowNotBanned(c *trial) {
	c.eachSample(func(s sample) {
		check := banning(s.Check, 2, 0, time.Hour)
		c.take(costing(check, 10), s.charged(10, 10))
		for range 3 {
			c.take(shadowed(check), s.exhausted())
		}
		c.take(check, s.exhausted())
		c.take(check, s.exhausted().banned(time.Hour))
		c.take(shadowed(check), s.exhausted())
	})
}

func impatientNotBanned(c *trial) {
	c.align(time.Second, 0)
	check := banning(of(limit("1/1s burst 3 leaky_bucket")), 2, time.Minute, time.Hour)
	c.take(check, charged(1, 2, time.Second))
	c.take(check, charged(1, 1, 2*time.Second).delayed(time.Second))
	for range 3 {
		c.take(impatient(check, time.Second), denied(1, time.Second, 2*time.Second))
	}
	c.take(impatient(costing(check, 2), time.Second), denied(1, time.Second, 2*time.Second)) // there is no room either
	c.take(impatient(costing(check, 4), time.Second), denied(1, algorithms.Never, 2*time.Second).banned(time.Hour))
}

func bansForever(c *trial) {
	c.eachSample(func(s sample) {
		check := banning(costing(s.Check, 11), 2, 0, time.Hour)
		c.take(check, denied(10, algorithms.Never, 0))
		c.take(check, denied(10, algorithms.Never, 0).banned(time.Hour))
		c.take(costing(check, 1), s.passed(0).banned(time.Hour))
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

// twoBans are those of two instances during a roll-out. Neither begins a ban that
// it does not say, and what one has begun holds for the other, too.
func twoBans(c *trial) {
	c.align(24*time.Hour, 0)
	quick := banning(of(fixed(1, 24*time.Hour)), 2, time.Minute, time.Minute)
	patient := banning(of(fixed(1, 24*time.Hour)), 4, time.Hour, 10*time.Hour)
	c.take(quick, charged(1, 0, 24*time.Hour))
	no := func() outcome { return denied(0, c.untilNext(24*time.Hour), c.untilNext(24*time.Hour)) }
	c.take(patient, no())
	c.wait(time.Minute)
	c.take(quick, no()) // begins anew
	c.take(patient, no())
	c.wait(time.Minute)
	c.take(patient, no())
	c.take(patient, no().banned(10*time.Hour))
	c.take(quick, no().banned(10*time.Hour))
	c.wait(10 * time.Hour)
	c.take(patient, no())
	c.take(quick, no().banned(time.Minute)) // the second Within a minute
	c.take(patient, no().banned(time.Minute))
}

func resetLifts(c *trial) {
	c.eachSample(func(s sample) {
		check := banning(s.Check, 2, 0, time.Hour)
		for range 2 {
			c.take(costing(check, 10), s.charged(10, 10))
			c.take(check, s.exhausted())
			c.reset(check)
		}
		c.take(costing(check, 10), s.charged(10, 10))
		c.take(check, s.exhausted())
		c.take(check, s.exhausted().banned(time.Hour))
		c.reset(s.Check) // by whatever check of the rule
		c.take(check, s.charged(1, 1))
	})
}
