package limitertest

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

var errorCases = []testCase{
	{name: "a negative cost is an error and charges nothing", run: negativeCost},
	{name: "a negative MaxDelay is an error and charges nothing", run: negativeMaxDelay},
	{name: "an invalid limit is an error and charges nothing", run: invalidLimit},
	{name: "an invalid ban is an error and charges nothing", run: invalidBans},
	{name: "two checks that share a count are an error in one call and charge nothing", run: duplicates},
}

// refused gives the checks, which are invalid, to Take, between valid ones.
func (c *trial) refused(what string, sentinel error, invalid ...algorithms.Check) {
	c.Helper()
	before, after := check("valid", "before", fixed(10, time.Hour)), check("valid", "after", fixed(10, time.Hour))
	c.align(time.Hour, 0)
	checks := append([]algorithms.Check{before}, invalid...)
	c.wantErrors(what, c.limiter.Take, append(checks, after), sentinel, algorithms.ErrInvalidCheck)
	c.take(before, charged(1, 9, time.Hour))
	c.take(after, charged(1, 9, time.Hour))
}

// wantErrors calls f, which has to decide nothing.
func (c *trial) wantErrors(what string, f decider, checks []algorithms.Check, sentinels ...error) {
	c.Helper()
	d, err := f(context.Background(), checks...)
	c.wantError(what, err, sentinels...)
	if d.Allowed || len(d.Results) > 0 {
		c.Errorf("%s: an error and a decision: %+v", what, d)
	}
}

func negativeCost(c *trial) {
	c.eachSample(func(s sample) {
		for _, units := range []int64{-1, -10, math.MinInt64} {
			what := fmt.Sprintf("%s, cost %d", s.Limit.Algorithm, units)
			c.refused(what, algorithms.ErrInvalidCheck, costing(s.Check, units))
			c.refused(what+", shadow", algorithms.ErrInvalidCheck, costing(shadowed(s.Check), units))
		}
		c.holds(s.Check, 10, 0)
	})
}

func negativeMaxDelay(c *trial) {
	c.eachSample(func(s sample) {
		c.refused(fmt.Sprintf("%s, negative MaxDelay", s.Limit.Algorithm), algorithms.ErrInvalidCheck, impatient(s.Check, -1))
		c.holds(s.Check, 10, 0)
	})
}

func invalidLimit(c *trial) {
	for what, l := range map[string]algorithms.Limit{
		"the zero limit":       {},
		"rate 0":               fixed(0, time.Second),
		"negative rate":        sliding(-1, time.Second),
		"rate too large":       sliding(1<<53, time.Second),
		"period 0":             {Rate: 1, Burst: 1},
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
		c.refused(what, algorithms.ErrInvalidCheck, of(l))
		c.refused(what+", shadow", algorithms.ErrInvalidCheck, shadowed(of(l)))
	}
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
			c.refused(what, algorithms.ErrInvalidCheck, s.Check, second)
			c.refused(what+", first", algorithms.ErrInvalidCheck, second, s.Check)
		}
		c.align(time.Second, 250*time.Millisecond)
		c.take(s.Check, s.charged(1, 1))
	})
	named, unnamed := sliding(10, time.Second), sliding(10, time.Second)
	unnamed.Algorithm = ""
	c.refused("sliding_window by default", algorithms.ErrInvalidCheck, of(named), of(unnamed))
}
