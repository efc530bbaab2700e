package limitertest

import (
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

var logCases = []testCase{
	{name: "a sliding log admits its rate in any period", run: logAdmitsRate},
	{name: "a sliding log counts what came in the last period, a period ago excluded", run: logCountsLastPeriod},
	{name: "a sliding log knows when each of many units leaves", run: logManyUnits},
	{name: "RetryAfter is tight in a sliding log", run: retryLog},
}

func logAdmitsRate(c *trial) {
	for _, phase := range []time.Duration{0, 250 * time.Millisecond, time.Second - 1*µs} {
		check := of(slidingLog(5, time.Second))
		c.align(time.Second, phase)
		for n := range int64(5) {
			c.take(check, charged(1, 4-n, time.Second))
		}
		c.take(check, denied(0, time.Second, time.Second))
		c.wait(1 * µs) // into the next window, in one case: the log knows none
		c.take(check, denied(0, time.Second-1*µs, time.Second-1*µs))
		c.wait(time.Second - 1*µs)
		c.take(check, charged(1, 4, time.Second))
		c.wait(time.Second)
	}
}

// logCountsLastPeriod takes one unit each 100 ms of a second, and then each
// when the one a second before it leaves.
func logCountsLastPeriod(c *trial) {
	check := of(slidingLog(10, time.Second))
	const tenth = 100 * time.Millisecond
	for n := range int64(10) {
		c.take(check, charged(1, 9-n, time.Second))
		c.wait(tenth - 1*µs)
		if n < 9 {
			c.holds(check, 9-n, time.Second-tenth+1*µs)
		} else {
			c.take(check, denied(0, 1*µs, time.Second-tenth+1*µs))
		}
		c.wait(1 * µs)
	}
	for range 20 {
		c.take(check, charged(1, 0, time.Second))
		c.take(check, denied(0, tenth, time.Second))
		c.wait(tenth)
	}
}

func logManyUnits(c *trial) {
	check := of(slidingLog(300, time.Minute))
	const each = 100 * time.Millisecond
	for n := range int64(300) { // 30 s
		c.take(check, charged(1, 299-n, time.Minute))
		c.wait(each)
	}
	for _, units := range []int64{1, 2, 100, 101, 102, 200, 201, 299, 300} {
		leaves := 30*time.Second + time.Duration(units-1)*each // the first leaves in 30 s
		c.take(costing(check, units), denied(0, leaves, time.Minute-each))
	}
	c.wait(30*time.Second + 199*each)
	c.take(costing(check, 200), charged(200, 0, time.Minute))
}

func retryLog(c *trial) {
	for _, l := range []struct {
		cost              int64
		now, before, then outcome
	}{
		// The first three leave five seconds from now, four in seven, three in ten.
		{1, denied(0, 5*time.Second, ten), denied(0, 1*µs, 5*time.Second+1*µs), charged(1, 2, ten)},
		{3, denied(0, 5*time.Second, ten), denied(0, 1*µs, 5*time.Second+1*µs), charged(3, 0, ten)},
		{4, denied(0, 7*time.Second, ten), denied(3, 1*µs, 3*time.Second+1*µs), charged(4, 3, ten)},
		{7, denied(0, 7*time.Second, ten), denied(3, 1*µs, 3*time.Second+1*µs), charged(7, 0, ten)},
		{8, denied(0, ten, ten), denied(7, 1*µs, 1*µs), charged(8, 2, ten)},
	} {
		check := of(slidingLog(10, ten))
		c.take(costing(check, 3), charged(3, 7, ten))
		c.wait(2 * time.Second)
		c.take(costing(check, 4), charged(4, 3, ten))
		c.wait(3 * time.Second)
		c.take(costing(check, 3), charged(3, 0, ten))
		above := costing(check, 11)
		above.Key = "beside"
		c.takeAll(expectation{above, denied(10, algorithms.Never, 0)}, expectation{costing(check, l.cost), l.now})
		c.tight(costing(check, l.cost), l.now, l.before, l.then)
		c.wait(ten)
	}
}
