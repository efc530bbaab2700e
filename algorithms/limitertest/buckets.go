package limitertest

import (
	"fmt"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

var bucketCases = []testCase{
	{name: "a token bucket, and gcra, admit their burst and then deny", run: eachBucket(bucketAdmitsBurst)},
	{name: "a token bucket, and gcra, hold their rate where burst is 0", run: eachBucket(bucketDefaultBurst)},
	{name: "a token bucket, and gcra, refill at their rate", run: eachBucket(bucketRefills)},
	{name: "a token bucket, and gcra, never hold more than their burst", run: eachBucket(bucketOverflows)},
	{name: "a token bucket, and gcra, lose nothing to rounding", run: eachBucket(bucketNeverDrifts)},
	{name: "a token bucket, and gcra, are exact at a large rate", run: eachBucket(bucketLarge)},
	{name: "a token bucket, and gcra, count terabytes", run: eachBucket(bucketTerabyte)},
}

// A bucketLimit is a token bucket or gcra, which decide the same.
type bucketLimit func(rate int64, period time.Duration, burst int64) algorithms.Limit

func eachBucket(run func(*trial, bucketLimit)) func(*trial) {
	return func(c *trial) {
		run(c, tokenBucket)
		run(c, gcra)
	}
}

func bucketAdmitsBurst(c *trial, bucket bucketLimit) {
	const each = 500 * time.Millisecond
	for _, burst := range []int64{1, 2, 7} {
		check := check("rule", fmt.Sprint("burst ", burst), bucket(2, time.Second, burst))
		full := time.Duration(burst) * each
		for n := range burst {
			c.take(check, charged(1, burst-1-n, time.Duration(n+1)*each))
		}
		c.take(check, denied(0, each, full))
		c.take(check, denied(0, each, full))
	}
}

func bucketDefaultBurst(c *trial, bucket bucketLimit) {
	check := of(bucket(5, time.Second, 0))
	for n := range int64(5) {
		c.take(check, charged(1, 4-n, time.Duration(n+1)*200*time.Millisecond))
	}
	c.take(check, denied(0, 200*time.Millisecond, time.Second))
}

func bucketRefills(c *trial, bucket bucketLimit) {
	check := of(bucket(10, time.Second, 5)) // a token each 100 ms
	c.take(costing(check, 5), charged(5, 0, 500*time.Millisecond))
	c.wait(250 * time.Millisecond)
	c.take(check, charged(1, 1, 350*time.Millisecond))
	c.take(check, charged(1, 0, 450*time.Millisecond))
	c.take(check, denied(0, 50*time.Millisecond, 450*time.Millisecond))
	for range 20 {
		c.wait(50 * time.Millisecond)
		c.take(check, charged(1, 0, 500*time.Millisecond))
		c.wait(50 * time.Millisecond)
		c.take(check, denied(0, 50*time.Millisecond, 450*time.Millisecond))
	}
}

func bucketOverflows(c *trial, bucket bucketLimit) {
	check := of(bucket(10, time.Second, 5))
	c.take(costing(check, 5), charged(5, 0, 500*time.Millisecond))
	for _, idle := range []time.Duration{500 * time.Millisecond, time.Hour} {
		c.wait(idle)
		c.take(costing(check, 4), charged(4, 1, 400*time.Millisecond))
		c.take(check, charged(1, 0, 500*time.Millisecond))
		c.take(check, denied(0, 100*time.Millisecond, 500*time.Millisecond))
	}
}

// bucketNeverDrifts takes each token at the first whole microsecond at which it
// is there, which is never when it comes: the n-th comes n·period/rate after
// the bucket was emptied.
func bucketNeverDrifts(c *trial, bucket bucketLimit) {
	for _, l := range []struct {
		rate   int64
		period time.Duration
		tokens int64
	}{
		{3, time.Second, 40},
		{7, time.Minute, 30},
		{999_983, time.Second, 30},
	} {
		check := check("rule", fmt.Sprint("rate ", l.rate), bucket(l.rate, l.period, 3))
		// The microsecond at which n tokens have come, rounded up.
		comes := func(n int64) time.Duration {
			return time.Duration((n*l.period.Microseconds()+l.rate-1)/l.rate) * µs
		}
		c.take(costing(check, 3), charged(3, 0, comes(3)))
		for n := range l.tokens {
			// n tokens were taken and it is comes(n). The bucket is full again
			// when n + 3 have come.
			now, next := comes(n), comes(n+1)
			c.take(check, denied(0, next-now, comes(n+3)-now))
			c.wait(next - now - 1*µs)
			c.take(check, denied(0, 1*µs, comes(n+3)-next+1*µs))
			c.wait(1 * µs)
			c.take(check, charged(1, 0, comes(n+4)-next))
		}
	}
}

// bucketLarge has a rate and a burst whose product is just below 2^53, the end of
// what a double holds exactly. A token comes each 910.37 µs.
func bucketLarge(c *trial, bucket bucketLimit) {
	const day = 24 * time.Hour
	check := of(bucket(94_906_264, day, 94_906_264))
	// ⌈94906263 · 86400000000/94906264⌉ = 86399999090
	c.take(costing(check, 94_906_263), charged(94_906_263, 1, day-910*µs))
	c.tight(costing(check, 2),
		denied(1, 911*µs, day-910*µs),
		denied(1, 1*µs, day-1820*µs),
		charged(2, 0, day))
}

// bucketTerabyte gets 1000 bytes a microsecond.
func bucketTerabyte(c *trial, bucket bucketLimit) {
	const tb = 1_000_000_000_000
	check := of(bucket(tb, 1000*time.Second, tb))
	c.take(costing(check, tb-1), charged(tb-1, 1, 1000*time.Second)) // and not a byte less than a µs earlier
	c.take(costing(check, 2), denied(1, 1*µs, 1000*time.Second))
	c.wait(1 * µs)
	c.take(costing(check, 1001), charged(1001, 0, 1000*time.Second))
	c.take(check, denied(0, 1*µs, 1000*time.Second))
	c.wait(1 * µs)
	c.take(check, charged(1, 999, 1000*time.Second))
}
