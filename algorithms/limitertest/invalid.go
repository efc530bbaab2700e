package limitertest

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

var errorCases = []testCase{
	{name: "a negative cost or MaxDelay is an error and charges nothing", run: negativeCost},
	{name: "an invalid limit is an error and charges nothing", run: invalidLimit},
	{name: "an invalid ban is an error and charges nothing", run: invalidBans},
	{name: "two checks that share a count are an error in one call and charge nothing", run: duplicates},
}

// refused gives the checks, which are invalid, to Take and Peek, between valid ones, and
// one of them to Reset.
func (c *trial) refused(what string, invalid ...algorithms.Check) {
	c.Helper()
	before, after := check("valid", "before", fixed(10, time.Hour)), check("valid", "after", fixed(10, time.Hour))
	c.align(time.Hour, 0)
	checks := slices.Concat([]algorithms.Check{before}, invalid, []algorithms.Check{after})
	c.wantErrors(what, c.limiter.Take, checks)
	c.wantErrors(what, c.limiter.Peek, checks)
	c.take(before, charged(1, 9, time.Hour))
	if len(invalid) == 1 {
		c.wantError(what, c.limiter.Reset(c.Context(), checks[:2]...))
		c.holds(before, 9, time.Hour)
	}
	c.take(after, charged(1, 9, time.Hour))
}

// wantErrors calls f, which has to decide nothing.
func (c *trial) wantErrors(what string, f decider, checks []algorithms.Check) {
	c.Helper()
	d, err := f(context.Background(), checks...)
	c.wantError(what, err)
	if d.Allowed || len(d.Results) > 0 {
		c.Errorf("%s: an error and a decision: %+v", what, d)
	}
}

func negativeCost(c *trial) {
	c.eachSample(func(s sample) {
		for _, units := range []int64{-1, -10, math.MinInt64} {
			what := fmt.Sprintf("%s, cost %d", s.Limit.Algorithm, units)
			c.refused(what, costing(s.Check, units))
			c.refused(what+", shadow", costing(shadowed(s.Check), units))
		}
		c.refused(fmt.Sprintf("%s, negative MaxDelay", s.Limit.Algorithm), impatient(s.Check, -1))
		c.holds(s.Check, 10, 0)
	})
}

func invalidLimit(c *trial) {
	for what, l := range map[string]algorithms.Limit{
		"the zero limit":       {},
		"negative rate":        sliding(-1, time.Second),
		"rate too large":       sliding(1<<53, time.Second),
		"negative period":      fixed(1, -time.Second),
		"period of 1 ns":       fixed(1, time.Nanosecond),
		"period of 1.5 µs":     sliding(1, 1500*time.Nanosecond),
		"period of 292 years":  sliding(1, math.MaxInt64/1000*1000),
		"negative burst":       {Rate: 1, Period: time.Second, Burst: -1},
		"burst too large":      {Rate: 1, Period: time.Second, Burst: 1 << 53},
		"burst of ages":        {Rate: 1, Period: 24 * time.Hour, Burst: 1_000_000},
		"burst of a window":    {Rate: 1, Period: time.Second, Burst: 2, Algorithm: algorithms.FixedWindow},
		"log too long":         {Rate: 10_001, Period: time.Second, Algorithm: algorithms.SlidingLog},
		"leaky without burst":  {Rate: 1, Period: time.Second, Algorithm: algorithms.LeakyBucket},
		"an unknown algorithm": {Rate: 1, Period: time.Second, Algorithm: "no_such_algorithm"},
	} {
		c.refused(what, of(l))
		c.refused(what+", shadow", shadowed(of(l)))
	}
}

func invalidBans(c *trial) {
	for what, b := range map[string]algorithms.Ban{
		"no After":           {For: time.Hour},
		"negative After":     {After: -1, For: time.Hour},
		"no For":             {After: 1},
		"For in ns":          {After: 1, For: 1500},
		"For of 2^52 µs":     {After: 1, For: 1 << 52 * µs},
		"negative Within":    {After: 1, Within: -1, For: time.Hour},
		"Within in ns":       {After: 1, Within: 1500, For: time.Hour},
		"Within too long":    {After: 1, Within: math.MaxInt64, For: time.Hour},
		"nothing but Within": {Within: time.Hour},
	} {
		check := of(fixed(10, time.Hour))
		check.Ban = b
		c.refused(what, check)
		c.refused(what+", shadow", shadowed(check))
	}
	longest := banning(of(fixed(10, time.Hour)), math.MaxInt64, 1<<52*µs-1*µs, 1<<52*µs-1*µs)
	c.align(time.Hour, 0)
	c.take(longest, charged(1, 9, time.Hour))
	c.ban(longest.Ban.For, longest)
	c.take(longest, passed(9, time.Hour).banned(longest.Ban.For))
	byHand := check("by hand", "key", fixed(1, 24*time.Hour))
	for _, d := range []time.Duration{-1, -time.Hour, 1, 1500, math.MaxInt64} {
		c.wantError(d.String(), c.limiter.Ban(c.Context(), d, byHand))
	}
	c.wantError("the zero limit", c.limiter.Ban(c.Context(), time.Hour, limitedTo(byHand, algorithms.Limit{})))
	c.take(byHand, charged(1, 0, c.untilNext(24*time.Hour)))
}

func duplicates(c *trial) {
	c.eachSample(func(s sample) {
		higher := s.Limit
		higher.Rate++
		for what, second := range map[string]algorithms.Check{
			"the same":          s.Check,
			"with another cost": costing(s.Check, 2),
			"with another rate": limitedTo(s.Check, higher),
			"as shadow":         shadowed(s.Check),
		} {
			what = fmt.Sprintf("%s twice, %s", s.Limit.Algorithm, what)
			c.refused(what, s.Check, second)
			c.refused(what+", first", second, s.Check)
		}
		c.align(time.Second, 250*time.Millisecond)
		c.take(s.Check, s.charged(1, 1))
	})
	named, unnamed := sliding(10, time.Second), sliding(10, time.Second)
	unnamed.Algorithm = ""
	c.refused("sliding_window by default", of(named), of(unnamed))
}
