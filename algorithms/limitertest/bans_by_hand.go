package limitertest

import (
	"math"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

var banByHandCases = []testCase{
	{name: "Ban bans by hand, and never for less than before", run: banByHand},
	{name: "Ban bans a check without a Ban, and what it denies charges nothing", run: banWithoutBan},
	{name: "Ban does nothing to a shadow check", run: banShadow},
	{name: "Settle refunds during a ban", run: settleBanned},
	{name: "Ban with 0 lifts a ban and forgets denials, and counts stay", run: banLifted},
}

func (c *trial) ban(d time.Duration, checks ...algorithms.Check) {
	c.Helper()
	if err := c.limiter.Ban(c.Context(), d, checks...); err != nil {
		c.Fatalf("Ban(%s)%v: %v", d, names(checks), err)
	}
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
		c.wantError(d.String(), c.limiter.Ban(c.Context(), d, of(fixed(1, time.Hour))))
	}
	c.wantError("the zero limit", c.limiter.Ban(c.Context(), time.Hour, limitedTo(of(fixed(1, time.Hour)), algorithms.Limit{})))
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
			expectation{beside.Check, s.passed(0).banned(time.Hour)},
			expectation{shadowed(s.under("shadow").Check), s.passed(0)})
		c.holds(s.under("free").Check, 10, 0)
		c.holds(s.under("shadow").Check, 10, 0)
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
