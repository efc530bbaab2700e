package limitertest

import (
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

var changeCases = []testCase{
	{name: "a limit whose rate changes keeps its count", run: changedRate},
	{name: "a sliding window whose rate changes keeps the last window's count", run: changedRateLastWindow},
	{name: "a token bucket, and gcra, whose burst changes keep their count", run: eachBucket(changedBurst)},
	{name: "a token bucket, and gcra, that is empty stays empty when its rate changes", run: eachBucket(changedRefill)},
}

// changedRate uses four of ten units. A lower rate binds at once, a higher one
// gives room at once.
func changedRate(c *trial) {
	for _, l := range []struct {
		of           func(rate int64) algorithms.Limit
		reset, retry time.Duration // retry: when the rate is 3
	}{
		{func(rate int64) algorithms.Limit { return fixed(rate, time.Second) }, 750 * time.Millisecond, 750 * time.Millisecond},
		{func(rate int64) algorithms.Limit { return sliding(rate, time.Second) }, 1750 * time.Millisecond, 1250 * time.Millisecond},
		{func(rate int64) algorithms.Limit { return slidingLog(rate, time.Second) }, time.Second, time.Second},
	} {
		check := of(l.of(10))
		c.align(time.Second, 250*time.Millisecond)
		c.take(costing(check, 4), charged(4, 6, l.reset))
		c.take(limitedTo(check, l.of(3)), denied(-1, l.retry, l.reset))
		c.take(limitedTo(check, l.of(6)), charged(1, 1, l.reset))
		c.take(limitedTo(check, l.of(20)), charged(1, 14, l.reset))
		c.take(costing(limitedTo(check, l.of(20)), 14), charged(14, 0, l.reset))
		c.take(costing(check, 11), denied(-10, algorithms.Never, l.reset))
		c.take(costing(limitedTo(check, l.of(100)), 80), charged(80, 0, l.reset))
	}
}

func changedRateLastWindow(c *trial) {
	check := of(sliding(10, ten))
	c.align(ten, 0)
	c.take(costing(check, 8), charged(8, 2, 2*ten))
	c.wait(ten + 2500*time.Millisecond)
	// Six of the eight are in view. One more fits beside three of them.
	c.take(limitedTo(check, sliding(4, ten)), denied(-2, 3750*time.Millisecond, 7500*time.Millisecond))
	c.take(limitedTo(check, sliding(7, ten)), charged(1, 0, 17500*time.Millisecond))
	c.take(limitedTo(check, sliding(20, ten)), charged(1, 12, 17500*time.Millisecond))
}

func changedBurst(c *trial, bucket bucketLimit) {
	burst := func(units int64) algorithms.Check { return of(bucket(10, time.Second, units)) }
	c.take(costing(burst(10), 4), charged(4, 6, 400*time.Millisecond))
	c.take(burst(3), denied(-1, 200*time.Millisecond, 400*time.Millisecond))
	c.take(burst(6), charged(1, 1, 500*time.Millisecond))
	c.take(burst(20), charged(1, 14, 600*time.Millisecond))
}

func changedRefill(c *trial, bucket bucketLimit) {
	rate := func(units int64) algorithms.Check { return of(bucket(units, time.Second, 0)) }
	c.take(costing(rate(10), 10), charged(10, 0, time.Second))
	c.take(rate(5), denied(0, 200*time.Millisecond, time.Second))
	c.take(rate(20), denied(0, 50*time.Millisecond, time.Second))
	c.wait(500 * time.Millisecond)
	c.take(costing(rate(20), 10), charged(10, 0, time.Second))
}
