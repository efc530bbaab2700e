package limitertest

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

var banCases = []testCase{
	{name: "a key that is denied After times is banned", run: bansAfter},
	{name: "a ban of After 1 begins with the first denial", run: bansAtOnce},
	{name: "denials during a ban do not extend it", run: banNotExtended},
	{name: "denials count towards a ban if they come Within the first", run: bansWithin},
	{name: "a ban's Within is the limit's period if it is 0", run: bansWithinPeriod},
	{name: "Peek counts no denial and sees a ban", run: peekBans},
	{name: "a check that is banned denies the request, which charges nothing", run: bansDenyAll},
	{name: "a check that has room counts no denial", run: bansOnlyDenied},
	{name: "a shadow check is not banned and counts no denial", run: shadowNotBanned},
	{name: "denials for MaxDelay alone do not count towards a ban", run: impatientNotBanned},
	{name: "a denial for ever counts towards a ban", run: bansForever},
	{name: "a ban is of one rule and key", run: bansOfOne},
	{name: "a ban stays when the limit changes", run: bansOutliveLimits},
	{name: "two bans on one key obey each other", run: twoBans},
	{name: "Ban bans by hand, and never for less than before", run: banByHand},
	{name: "Ban bans a check without a Ban, and counts stay", run: banWithoutBan},
	{name: "Ban does nothing to a shadow check", run: banShadow},
	{name: "Settle works on the count of a check that Ban has banned", run: settleBannedByHand},
	{name: "Ban with 0 lifts a ban and forgets denials, and counts stay", run: banLifted},
	{name: "Reset lifts a ban and forgets denials", run: resetLifts},
	{name: "Settle gives back during a ban", run: settleWhileBanned},
	{name: "an invalid ban is an error and charges nothing", run: invalidBans},
	{name: "requests at the same time are banned after exactly so many denials", run: raceToBan},
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

func (c *trial) ban(d time.Duration, checks ...algorithms.Check) {
	c.Helper()
	if err := c.limiter.Ban(c.Context(), d, checks...); err != nil {
		c.Fatalf("Ban(%s)%v: %v", d, names(checks), err)
	}
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

func bansAtOnce(c *trial) {
	c.eachSample(func(s sample) {
		check := banning(s.Check, 1, 0, 15*time.Minute)
		c.take(costing(check, 10), s.charged(10, 10))
		c.take(check, s.exhausted().banned(15*time.Minute))
		c.wait(15*time.Minute - 1*µs)
		c.take(check, s.passed(0).banned(1*µs))
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
	check = banning(of(tokenBucket(1, time.Hour, 1)), 2, 1*µs, time.Minute)
	c.take(check, charged(1, 0, time.Hour))
	c.take(check, denied(0, time.Hour, time.Hour))
	c.wait(1 * µs)
	c.take(check, denied(0, time.Hour-1*µs, time.Hour-1*µs))
	c.take(check, denied(0, time.Hour-1*µs, time.Hour-1*µs).banned(time.Minute))
}

func bansWithinPeriod(c *trial) {
	c.align(time.Hour, 0)
	check := banning(of(tokenBucket(1, time.Hour, 1)), 2, 0, 3*time.Hour)
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

func bansDenyAll(c *trial) {
	c.eachSample(func(s sample) {
		check, beside, shadow := banning(s.Check, 1, 0, time.Hour), s.under("beside"), shadowed(s.under("shadow").Check)
		c.ban(time.Hour, check)
		c.takeAll(
			expectation{beside.Check, s.passed(0)},
			expectation{check, s.passed(0).banned(time.Hour)},
			expectation{shadow, s.passed(0)})
		c.holds(beside.Check, 10, 0)
		c.holds(shadow, 10, 0)
		c.ban(0, check)
		c.holds(s.Check, 10, 0)
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
	check := banning(of(leakyBucket(1, time.Second, 3)), 2, time.Minute, time.Hour)
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

func banByHand(c *trial) {
	c.eachSample(func(s sample) {
		check, beside := banning(s.Check, 3, 0, time.Minute), banning(s.under("beside").Check, 3, 0, time.Minute)
		c.take(check, s.charged(1, 1))
		c.ban(time.Hour, check, beside)
		c.ban(time.Second, check)
		c.take(check, s.passed(1).banned(time.Hour))
		c.take(beside, s.passed(0).banned(time.Hour))
		c.ban(2*time.Hour, check)
		c.take(check, s.passed(1).banned(2*time.Hour))
		c.wait(time.Hour)
		c.take(check, s.passed(0).banned(time.Hour))
		c.take(beside, s.charged(1, 1))
	})
	for _, d := range []time.Duration{-1, -time.Hour, 1, 1500, math.MaxInt64} {
		c.wantError(d.String(), c.limiter.Ban(c.Context(), d, of(fixed(1, time.Hour))), algorithms.ErrInvalidCheck)
	}
	c.wantError("the zero limit", c.limiter.Ban(c.Context(), time.Hour, limitedTo(of(fixed(1, time.Hour)), algorithms.Limit{})), algorithms.ErrInvalidCheck)
	c.take(of(fixed(1, time.Hour)), charged(1, 0, c.untilNext(time.Hour)))
}

func banWithoutBan(c *trial) {
	c.eachSample(func(s sample) {
		beside := s.under("beside")
		c.take(costing(s.Check, 4), s.charged(4, 4))
		c.ban(time.Hour, s.Check, beside.Check)
		c.take(s.Check, s.passed(4).banned(time.Hour))
		c.peek(s.Check, s.passed(4).banned(time.Hour))
		c.takeAll(
			expectation{s.under("free").Check, s.passed(0)},
			expectation{beside.Check, s.passed(0).banned(time.Hour)})
		c.take(banning(s.Check, 1, 0, time.Minute), s.passed(4).banned(time.Hour))
		c.ban(0, s.Check)
		c.take(s.Check, s.charged(1, 5))
		c.ban(time.Hour, s.Check)
		c.wait(time.Hour - 1*µs)
		c.take(s.Check, s.passed(0).banned(1*µs))
		c.wait(1 * µs)
		c.peek(s.Check, s.passed(0))
		c.align(time.Second, 250*time.Millisecond)
		c.take(s.Check, s.charged(1, 1))
		c.ban(100*time.Millisecond, s.Check) // ends before the count
		c.wait(100 * time.Millisecond)
		c.holds(s.Check, s.after(100*time.Millisecond).remaining(1), s.after(100*time.Millisecond).reset(1))
		c.ban(time.Hour, s.Check)
		c.reset(s.Check)
		c.holds(s.Check, 10, 0)
	})
}

func banShadow(c *trial) {
	c.eachSample(func(s sample) {
		c.take(costing(s.Check, 4), s.charged(4, 4))
		c.ban(time.Hour, s.Check)
		c.take(shadowed(s.Check), s.charged(1, 5))
		c.take(shadowed(banning(s.Check, 1, 0, time.Minute)), s.charged(1, 6))
		c.take(s.Check, s.passed(6).banned(time.Hour))
		c.ban(0, s.Check)
		c.take(s.Check, s.charged(1, 7))
	})
}

func settleBannedByHand(c *trial) {
	c.eachSample(func(s sample) {
		first := c.take(costing(s.Check, 4), s.charged(4, 4))
		c.ban(time.Hour, s.Check)
		results, err := c.limiter.Settle(c.Context(), algorithms.Charge{Result: first})
		if err != nil || results[0].Charged != 0 || results[0].Remaining != 10 {
			c.Errorf("Settle: %+v, %v", results, err)
		}
		c.ban(0, s.Check)
		c.holds(s.Check, 10, 0)
	})
}

func banLifted(c *trial) {
	c.eachSample(func(s sample) {
		check := banning(s.Check, 2, 0, time.Hour)
		c.take(costing(check, 10), s.charged(10, 10))
		c.take(check, s.exhausted())
		c.ban(0, check) // there is none, but a denial
		c.take(check, s.exhausted())
		c.take(check, s.exhausted().banned(time.Hour))
		c.ban(0, check, s.under("another").Check)
		c.take(check, s.exhausted())
		c.take(check, s.exhausted().banned(time.Hour))
	})
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

func settleWhileBanned(c *trial) {
	c.eachSample(func(s sample) {
		check := banning(s.Check, 1, 0, time.Second)
		first := c.take(costing(check, 10), s.charged(10, 10))
		c.take(check, s.exhausted().banned(time.Second))
		results, err := c.limiter.Settle(c.Context(), algorithms.Charge{Result: first})
		if err != nil || results[0].Charged != 0 || results[0].Remaining != 10 {
			c.Errorf("Settle: %+v, %v", results, err)
		}
		c.take(check, s.passed(0).banned(time.Second))
		c.wait(time.Second)
		c.take(check, s.charged(1, 1))
	})
}

func invalidBans(c *trial) {
	for what, b := range map[string]algorithms.Ban{
		"no After":              {For: time.Hour},
		"negative After":        {After: -1, For: time.Hour},
		"no For":                {After: 1},
		"negative For":          {After: 1, For: -time.Hour},
		"For in ns":             {After: 1, For: 1500},
		"For of 2^52 µs":        {After: 1, For: 1 << 52 * µs},
		"For too long":          {After: 1, For: math.MaxInt64},
		"negative Within":       {After: 1, Within: -1, For: time.Hour},
		"Within in ns":          {After: 1, Within: 1500, For: time.Hour},
		"Within too long":       {After: 1, Within: math.MaxInt64, For: time.Hour},
		"nothing but Within":    {Within: time.Hour},
		"everything is invalid": {After: -1, Within: -1, For: -1},
	} {
		check := of(fixed(10, time.Hour))
		check.Ban = b
		c.refused(what, algorithms.ErrInvalidCheck, check)
		c.refused(what+", shadow", algorithms.ErrInvalidCheck, shadowed(check))
	}
	longest := banning(of(fixed(10, time.Hour)), math.MaxInt64, 1<<52*µs-1*µs, 1<<52*µs-1*µs)
	c.align(time.Hour, 0)
	c.take(longest, charged(1, 9, time.Hour))
	c.ban(longest.Ban.For, longest)
	c.take(longest, passed(9, time.Hour).banned(longest.Ban.For))
}

func raceToBan(c *trial) {
	c.eachSample(func(s sample) {
		check := banning(s.Check, 20, time.Hour, time.Hour)
		c.take(costing(check, 10), s.charged(10, 10))
		var unbanned atomic.Int64
		allowed := c.raceWith(5, func(int, int) bool {
			d, err := c.limiter.Take(c.Context(), check)
			if err != nil {
				c.Errorf("Take: %v", err)
				return false
			}
			if !d.Results[0].Banned {
				unbanned.Add(1)
			}
			return d.Allowed
		})
		if sum(allowed) != 0 || unbanned.Load() != 19 {
			c.Errorf("%s: %d of 40 denials were without a ban, and %v allowed; want 19 and none", name(check), unbanned.Load(), allowed)
		}
		c.take(check, s.exhausted().banned(time.Hour))
	})
}
