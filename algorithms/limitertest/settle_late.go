package limitertest

import (
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// Giving back what a limit has freed by itself since would admit more than it
// allows.
var lateSettleCases = []testCase{
	{name: "Settle gives back to the fixed window that was charged", run: lateFixedWindow},
	{name: "Settle gives back to the sliding window that was charged while it is in view", run: lateSlidingWindow},
	{name: "Settle gives back to a sliding log while the charge is in view", run: lateLog},
	{name: "Settle gives back to a token bucket, and gcra, at most what they have not refilled since", run: eachBucket(lateBucket)},
	{name: "Settle gives back a part to a token bucket, and gcra, before it gives less", run: eachBucket(lateBucketPart)},
	{name: "Settle gives a leaky bucket's place back only while it is the last", run: lateQueue},
	{name: "Settle loses nothing to rounding in a token bucket, and in gcra", run: eachBucket(lateBucketThirds)},
	{name: "Settle loses nothing to rounding in a leaky bucket", run: lateQueueThirds},
	{name: "Settle charges more to the present", run: lateMore},
	{name: "Settle gives nothing back of what was forgotten", run: lateForgotten},
}

func lateFixedWindow(c *trial) {
	check := of(fixed(10, time.Second))
	c.align(time.Second, 250*time.Millisecond)
	first := c.take(costing(check, 4), charged(4, 6, 750*time.Millisecond))
	second := c.take(costing(check, 3), charged(3, 3, 750*time.Millisecond))
	c.wait(750*time.Millisecond - 1*µs)
	c.settle(0, first)
	c.holds(check, 7, 1*µs)
	c.wait(1 * µs)
	c.settle(1, second)
	c.holds(check, 10, 0)
	c.take(costing(check, 2), charged(2, 8, time.Second))
	c.settle(0, second)
	c.holds(check, 8, time.Second)
}

func lateSlidingWindow(c *trial) {
	check := of(sliding(10, ten))
	c.align(ten, 2500*time.Millisecond)
	first := c.take(costing(check, 4), charged(4, 6, 17500*time.Millisecond))
	second := c.take(costing(check, 4), charged(4, 2, 17500*time.Millisecond))
	c.wait(ten) // three quarters of the eight are in view
	third := c.take(costing(check, 2), charged(2, 2, 17500*time.Millisecond))
	c.settle(0, first) // three quarters of four
	c.holds(check, 5, 17500*time.Millisecond)
	c.settle(2, second) // one and a half
	c.holds(check, 6, 17500*time.Millisecond)
	c.wait(ten - 1*µs)
	c.settle(1, third) // leaves 1 and ⌈0.75⌉ of 1, in the next window
	c.holds(check, 9, 7500*time.Millisecond+1*µs)
	c.take(check, charged(1, 8, 17500*time.Millisecond+1*µs))

	c.settle(0, second) // out of view: nothing of it is in what is counted now
	c.holds(check, 8, 17500*time.Millisecond+1*µs)
	c.wait(time.Hour)
	c.settle(0, third)
	c.holds(check, 10, 0)
}

func lateLog(c *trial) {
	check := of(slidingLog(10, ten))
	first := c.take(costing(check, 4), charged(4, 6, ten))
	c.wait(2 * time.Second)
	second := c.take(costing(check, 3), charged(3, 3, ten))
	beside := c.take(check, charged(1, 2, ten))
	c.wait(2 * time.Second)
	third := c.take(costing(check, 2), charged(2, 0, ten))
	c.settle(2, second)
	c.holds(check, 1, ten)
	c.settle(0, first)
	c.holds(check, 5, ten)
	c.settle(1, third)
	c.holds(check, 6, ten)

	// The second leaves 10 s after it came, not a microsecond earlier.
	c.wait(8*time.Second - 1*µs)
	c.holds(check, 6, 2*time.Second+1*µs)
	c.wait(1 * µs)
	c.holds(check, 9, 2*time.Second)
	c.settle(0, beside)
	c.holds(check, 9, 2*time.Second)

	// Without the last, all is free when the one before it leaves.
	fourth := c.take(costing(check, 5), charged(5, 4, ten))
	c.settle(0, fourth)
	c.holds(check, 9, 2*time.Second)
	c.wait(2 * time.Second)
	c.holds(check, 10, 0)

	// A debt leaves with the entry that was charged last.
	first = c.take(check, charged(1, 9, ten))
	c.wait(time.Second)
	c.settle(20, first)
	c.holds(check, -10, ten)
	c.wait(9 * time.Second)
	c.holds(check, -9, 1*time.Second)
	c.wait(1 * time.Second)
	c.holds(check, 10, 0)
}

func lateBucket(c *trial, bucket bucketLimit) {
	limit := bucket(10, time.Second, 10) // a token each 100 ms
	for _, later := range []struct {
		wait      time.Duration
		remaining int64
		reset     time.Duration
	}{
		{0, 5, half}, // all five come back
		{300 * time.Millisecond, 5, half},
		{350 * time.Millisecond, 5, half},
		{half - 1*µs, 5, half},
		{half, 5, half}, // none: all five have been refilled
		{700 * time.Millisecond, 7, 300 * time.Millisecond},
		{time.Second, 10, 0},
		{time.Hour, 10, 0},
	} {
		check := check("late", later.wait.String(), limit)
		first := c.take(costing(check, 5), charged(5, 5, half))
		c.take(costing(check, 5), charged(5, 0, time.Second))
		c.wait(later.wait)
		c.settle(0, first)
		c.holds(check, later.remaining, later.reset)
	}
}

func lateBucketPart(c *trial, bucket bucketLimit) {
	limit := bucket(10, time.Second, 10)
	for _, later := range []struct {
		wait      time.Duration
		remaining int64
		reset     time.Duration
	}{
		{0, 2, 800 * time.Millisecond},
		{200 * time.Millisecond, 4, 600 * time.Millisecond},
		{300 * time.Millisecond, 5, half}, // of five, two are left to give back
		{400 * time.Millisecond, 5, half}, // one
		{450 * time.Millisecond, 5, half}, // a half
		{600 * time.Millisecond, 6, 400 * time.Millisecond},
	} {
		check := check("late", later.wait.String(), limit)
		first := c.take(costing(check, 5), charged(5, 5, half))
		c.take(costing(check, 5), charged(5, 0, time.Second))
		c.wait(later.wait)
		c.settle(3, first)
		c.holds(check, later.remaining, later.reset)
	}
}

func lateQueue(c *trial) {
	queue := func(key string) algorithms.Check { return check("queue", key, leakyBucket(10, time.Second, 10)) }

	// Places of 100 ms: three for the first, then three for the second.
	one := queue("one after the other")
	first := c.take(costing(one, 3), charged(3, 7, 300*time.Millisecond))
	second := c.take(costing(one, 3), charged(3, 4, 600*time.Millisecond).delayed(300*time.Millisecond))
	c.settle(0, first) // the second waits behind it all the same
	c.holds(one, 4, 600*time.Millisecond)
	c.wait(100 * time.Millisecond)
	c.settle(1, second)
	c.take(one, charged(1, 6, 400*time.Millisecond).delayed(300*time.Millisecond))
	c.settle(0, second) // no longer the last
	c.holds(one, 6, 400*time.Millisecond)

	// A place whose time has begun gives back what is left of it.
	begun := queue("begun")
	first = c.take(costing(begun, 3), charged(3, 7, 300*time.Millisecond))
	c.wait(150 * time.Millisecond)
	c.holds(begun, 8, 150*time.Millisecond)
	c.settle(0, first)
	c.take(begun, charged(1, 9, 100*time.Millisecond))

	over := queue("over")
	first = c.take(costing(over, 3), charged(3, 7, 300*time.Millisecond))
	c.wait(350 * time.Millisecond)
	c.take(over, charged(1, 9, 100*time.Millisecond))
	c.settle(0, first)
	c.holds(over, 9, 100*time.Millisecond)
}

// third is how long a token of three per second takes, rounded up.
const third = 333_334 * µs

func lateBucketThirds(c *trial, bucket bucketLimit) {
	check := of(bucket(3, time.Second, 3))
	first := c.take(costing(check, 3), charged(3, 0, time.Second))
	c.settle(2, first)
	second := c.take(check, charged(1, 0, time.Second))
	for range 10 {
		c.settle(0, second)
		second = c.take(check, charged(1, 0, time.Second))
	}
	c.wait(100 * time.Millisecond)
	c.settle(0, second) // what is left of it: a third of a second, less 100 ms
	c.holds(check, 1, 2*third-1*µs)
	c.take(check, charged(1, 0, time.Second))
}

func lateQueueThirds(c *trial) {
	check := of(leakyBucket(3, time.Second, 3))
	first := c.take(costing(check, 3), charged(3, 0, time.Second))
	c.settle(2, first)
	second := c.take(check, charged(1, 0, time.Second).delayed(2*third-1*µs))
	for range 10 {
		c.settle(0, second)
		second = c.take(check, charged(1, 0, time.Second).delayed(2*third-1*µs))
	}
	c.wait(666_666 * µs) // a part of a microsecond before its turn
	c.settle(0, second)
	c.holds(check, 2, 1*µs)
	c.take(check, charged(1, 1, third).delayed(1*µs))
}

// lateMore charges to the window that it is then, or to what a bucket holds
// then.
func lateMore(c *trial) {
	c.eachSample(func(s sample) {
		r := c.take(s.Check, s.charged(1, 1))
		c.wait(2 * time.Second)
		c.settle(4, r)
		c.holds(s.Check, 7, s.reset(3))
	})
}

func lateForgotten(c *trial) {
	c.eachSample(func(s sample) {
		r := c.take(costing(s.Check, 4), s.charged(4, 4))
		if err := c.limiter.Reset(c.Context(), s.Check); err != nil {
			c.Fatal(err)
		}
		c.settle(3, r)
		c.settle(0, r)
		c.holds(s.Check, 10, 0)
	})
}
