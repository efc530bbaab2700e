package limitertest

import (
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

var retryCases = []testCase{
	{name: "RetryAfter is tight in a fixed window", run: retryFixedWindow},
	{name: "RetryAfter is tight in a sliding window that waits for the last one to leave view", run: retrySlidingWindowThis},
	{name: "RetryAfter is tight in a sliding window that waits for the next one", run: retrySlidingWindowNext},
	{name: "RetryAfter is tight in a token bucket, and in gcra", run: eachBucket(retryBucket)},
}

func retryFixedWindow(c *trial) {
	for _, left := range []time.Duration{time.Second, 999_999 * µs, 750 * time.Millisecond, 2 * µs, 1 * µs} {
		one, three := check("one", "key", fixed(10, time.Second)), check("three", "key", fixed(10, time.Second))
		c.align(time.Second, time.Second-left)
		c.take(costing(one, 10), charged(10, 0, left))
		c.take(costing(three, 8), charged(8, 2, left))
		c.take(costing(three, 3), denied(2, left, left))
		c.tight(one, denied(0, left, left), denied(0, 1*µs, 1*µs), charged(1, 9, time.Second))
		c.take(costing(three, 3), charged(3, 7, time.Second))
	}
	check := of(fixed(10, time.Second))
	c.align(time.Second, 250*time.Millisecond)
	c.take(costing(check, 8), charged(8, 2, 750*time.Millisecond))
	c.tight(costing(check, 3),
		denied(2, 750*time.Millisecond, 750*time.Millisecond),
		denied(2, 1*µs, 1*µs),
		charged(3, 7, time.Second))
}

const (
	ten  = 10 * time.Second
	half = 500 * time.Millisecond
)

// lastAndThis uses so many units of a sliding window in one window, and so many
// in the next when this much of it has passed.
func (c *trial) lastAndThis(check algorithms.Check, last, this int64, phase time.Duration) {
	c.Helper()
	l := check.Limit
	c.align(l.Period, 0)
	c.take(costing(check, last), charged(last, l.Rate-last, 2*l.Period))
	c.wait(l.Period + phase)
	left := l.Period - phase
	share := (last*left.Microseconds() + l.Period.Microseconds() - 1) / l.Period.Microseconds()
	c.take(costing(check, this), charged(this, l.Rate-this-share, left+l.Period))
}

func retrySlidingWindowThis(c *trial) {
	// Eight units in the last window, four in this one, 7.5 s of it left. One
	// more fits beside five of the eight: at 6.25 s left.
	one := check("one", "key", sliding(10, ten))
	c.lastAndThis(one, 8, 4, 2500*time.Millisecond)
	c.tight(one,
		denied(0, 1250*time.Millisecond, 17*time.Second+half),
		denied(0, 1*µs, 16250*time.Millisecond+1*µs),
		charged(1, 0, 16250*time.Millisecond))

	// Three more fit beside three of the eight: at 3.75 s left.
	three := check("three", "key", sliding(10, ten))
	c.lastAndThis(three, 8, 4, 2500*time.Millisecond)
	c.tight(costing(three, 3),
		denied(0, 3750*time.Millisecond, 17*time.Second+half),
		denied(2, 1*µs, 13750*time.Millisecond+1*µs),
		charged(3, 0, 13750*time.Millisecond))

	// One more fits beside two of three: at ⌊1000000 · 2/3⌋ µs left.
	thirds := check("thirds", "key", sliding(7, time.Second))
	c.lastAndThis(thirds, 3, 4, 100*time.Millisecond)
	c.tight(thirds,
		denied(0, 233_334*µs, 1_900_000*µs),
		denied(0, 1*µs, 1_666_667*µs),
		charged(1, 0, 1_666_666*µs))

	// One more fits beside none of the four: when this window is over. In the
	// next it fits beside the six of this one.
	none := check("none", "key", sliding(7, time.Second))
	c.lastAndThis(none, 4, 6, 750*time.Millisecond)
	c.tight(none,
		denied(0, 250*time.Millisecond, 1250*time.Millisecond),
		denied(0, 1*µs, time.Second+1*µs),
		charged(1, 0, 2*time.Second))
}

func retrySlidingWindowNext(c *trial) {
	// Ten units in this window, 7.5 s of it left. One more fits beside nine of
	// them: at 9 s left of the next.
	one := check("one", "key", sliding(10, ten))
	c.align(ten, 2500*time.Millisecond)
	c.take(costing(one, 10), charged(10, 0, 17*time.Second+half))
	c.tight(one,
		denied(0, 8*time.Second+half, 17*time.Second+half),
		denied(0, 1*µs, 9*time.Second+1*µs),
		charged(1, 0, 19*time.Second))

	// Four more fit beside six of them: at 6 s left of the next.
	four := check("four", "key", sliding(10, ten))
	c.align(ten, 2500*time.Millisecond)
	c.take(costing(four, 10), charged(10, 0, 17*time.Second+half))
	c.tight(costing(four, 4),
		denied(0, 11*time.Second+half, 17*time.Second+half),
		denied(3, 1*µs, 6*time.Second+1*µs),
		charged(4, 0, 16*time.Second))

	// The last window's two are out of view by then. Three fit beside seven of
	// nine: at ⌊10000000 · 7/9⌋ µs left of the next.
	three := check("three", "key", sliding(10, ten))
	c.lastAndThis(three, 2, 9, 5*time.Second)
	c.tight(costing(three, 3),
		denied(0, 7_222_223*µs, 15*time.Second),
		denied(2, 1*µs, 7_777_778*µs),
		charged(3, 0, 17_777_777*µs))

	// All ten fit beside nothing: when the next window is over.
	all := check("all", "key", sliding(10, ten))
	c.align(ten, 2500*time.Millisecond)
	c.take(all, charged(1, 9, 17*time.Second+half))
	c.tight(costing(all, 10),
		denied(9, 17*time.Second+half, 17*time.Second+half),
		denied(9, 1*µs, 1*µs),
		charged(10, 0, 20*time.Second))
}

func retryBucket(c *trial, bucket bucketLimit) {
	one := check("one", "key", bucket(10, time.Second, 5))
	c.take(costing(one, 5), charged(5, 0, half))
	c.tight(one,
		denied(0, 100*time.Millisecond, half),
		denied(0, 1*µs, 400*time.Millisecond+1*µs),
		charged(1, 0, half))

	three := check("three", "key", bucket(10, time.Second, 5))
	c.take(costing(three, 5), charged(5, 0, half))
	c.tight(costing(three, 3),
		denied(0, 300*time.Millisecond, half),
		denied(2, 1*µs, 200*time.Millisecond+1*µs),
		charged(3, 0, half))

	// A third of a second is not a whole number of microseconds: RetryAfter and
	// ResetAfter are rounded up.
	third := check("third", "key", bucket(3, time.Second, 3))
	c.take(costing(third, 3), charged(3, 0, time.Second))
	c.tight(third,
		denied(0, 333_334*µs, time.Second),
		denied(0, 1*µs, 666_667*µs),
		charged(1, 0, time.Second))

	thirds := check("thirds", "key", bucket(3, time.Second, 3))
	c.take(costing(thirds, 3), charged(3, 0, time.Second))
	c.tight(costing(thirds, 2),
		denied(0, 666_667*µs, time.Second),
		denied(1, 1*µs, 333_334*µs),
		charged(2, 0, time.Second))
}

var resetAfterCases = []testCase{
	{name: "ResetAfter is when all units are free and not a microsecond earlier", run: resetAfterIsTight},
	{name: "ResetAfter is 0 when nothing is used", run: resetAfterIsZero},
}

func resetAfterIsTight(c *trial) {
	for _, used := range []int64{1, 4, 10} {
		c.eachSample(func(s sample) {
			c.take(costing(s.Check, used), s.charged(used, used))
			c.wait(s.reset(used) - 1*µs)
			before := int64(9) // a part of a unit takes a whole one
			if s.atOnce {
				before = 10 - used
			}
			c.holds(s.Check, before, 1*µs)
			c.wait(1 * µs)
			c.holds(s.Check, 10, 0)
		})
	}
	for _, l := range []algorithms.Limit{
		tokenBucket(3, time.Second, 3), gcra(3, time.Second, 3), leakyBucket(3, time.Second, 3),
	} {
		c.take(of(l), charged(1, 2, 333_334*µs))
		c.wait(333_333 * µs)
		c.holds(of(l), 2, 1*µs)
		c.wait(1 * µs)
		c.holds(of(l), 3, 0)
	}
}

func resetAfterIsZero(c *trial) {
	c.eachSample(func(s sample) {
		c.holds(s.Check, 10, 0)
		c.take(s.Check, s.charged(1, 1))
		c.wait(time.Hour)
		c.holds(s.Check, 10, 0)
	})
}
