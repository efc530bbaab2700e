package limitertest

import (
	"fmt"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

var queueCases = []testCase{
	{name: "a leaky bucket admits its burst, each to wait for those before it", run: queueAdmitsBurst},
	{name: "a leaky bucket has each serve its cost", run: queueCosts},
	{name: "a leaky bucket lets out its rate, whatever comes in", run: queueConstantOutflow},
	{name: "a leaky bucket loses nothing to rounding", run: queueNeverDrifts},
	{name: "RetryAfter is tight in a leaky bucket", run: retryQueue},
	{name: "a leaky bucket denies who would wait longer than MaxDelay, and charges nothing", run: queueMaxDelay},
	{name: "a leaky bucket that is full denies whatever MaxDelay is", run: queueMaxDelayFull},
	{name: "a leaky bucket loses nothing to rounding of MaxDelay", run: queueMaxDelayThirds},
	{name: "MaxDelay is for leaky buckets only", run: maxDelayElsewhere},
}

func queueAdmitsBurst(c *trial) {
	const each = 500 * time.Millisecond
	for _, burst := range []int64{1, 2, 7} {
		check := check("rule", fmt.Sprint("burst ", burst), leakyBucket(2, time.Second, burst))
		for n := range burst {
			turn := time.Duration(n) * each
			c.take(check, charged(1, burst-1-n, turn+each).delayed(turn))
		}
		c.take(check, denied(0, each, time.Duration(burst)*each))
		c.wait(time.Duration(burst) * each)
		c.take(check, charged(1, burst-1, each))
	}
}

func queueCosts(c *trial) {
	check := of(leakyBucket(10, time.Second, 10))
	c.take(costing(check, 3), charged(3, 7, 300*time.Millisecond))
	c.take(costing(check, 5), charged(5, 2, 800*time.Millisecond).delayed(300*time.Millisecond))
	c.take(costing(check, 3), denied(2, 100*time.Millisecond, 800*time.Millisecond))
	c.wait(50 * time.Millisecond)
	c.take(costing(check, 2), charged(2, 0, 950*time.Millisecond).delayed(750*time.Millisecond))
}

// queueConstantOutflow asks each 30 ms for a place of 100 ms: while there is
// room in the queue, turns come 100 ms apart.
func queueConstantOutflow(c *trial) {
	check := of(leakyBucket(10, time.Second, 4))
	const place, full, step = 100 * time.Millisecond, 400 * time.Millisecond, 30 * time.Millisecond
	left := func(queue time.Duration) int64 { return int64((full - queue) / place) }
	queue := time.Duration(0) // how long those take that are in it
	for range 60 {
		if queue+place > full {
			c.take(check, denied(left(queue), queue+place-full, queue))
		} else {
			c.take(check, charged(1, left(queue+place), queue+place).delayed(queue))
			queue += place
		}
		c.wait(step)
		queue -= step
	}
}

// queueNeverDrifts takes every place as soon as there is one. The n-th turn is
// n·period/rate after the first, rounded up; so is the time at which a place
// comes free.
func queueNeverDrifts(c *trial) {
	check := of(leakyBucket(7, time.Minute, 3))
	comes := func(n int64) time.Duration {
		return time.Duration((n*60_000_000+6)/7) * µs
	}
	for n := range int64(3) {
		c.take(check, charged(1, 2-n, comes(n+1)).delayed(comes(n)))
	}
	for n := range int64(30) {
		now, next := comes(n), comes(n+1)
		c.take(check, denied(0, next-now, comes(n+3)-now))
		c.wait(next - now - 1*µs)
		c.take(check, denied(0, 1*µs, comes(n+3)-next+1*µs))
		c.wait(1 * µs)
		c.take(check, charged(1, 0, comes(n+4)-next).delayed(comes(n+3)-next))
	}
}

func retryQueue(c *trial) {
	check := of(leakyBucket(10, time.Second, 5))
	c.take(costing(check, 5), charged(5, 0, half))
	c.tight(check,
		denied(0, 100*time.Millisecond, half),
		denied(0, 1*µs, 400*time.Millisecond+1*µs),
		charged(1, 0, half).delayed(400*time.Millisecond))
	c.tight(costing(check, 3),
		denied(0, 300*time.Millisecond, half),
		denied(2, 1*µs, 200*time.Millisecond+1*µs),
		charged(3, 0, half).delayed(200*time.Millisecond))

	thirds := check
	thirds.Key, thirds.Limit = "thirds", leakyBucket(3, time.Second, 3)
	c.take(costing(thirds, 3), charged(3, 0, time.Second))
	c.tight(costing(thirds, 2),
		denied(0, 666_667*µs, time.Second),
		denied(1, 1*µs, 333_334*µs),
		charged(2, 0, time.Second).delayed(333_333*µs))
}

func impatient(c algorithms.Check, longest time.Duration) algorithms.Check {
	c.MaxDelay = longest
	return c
}

func queueMaxDelay(c *trial) {
	const place = 100 * time.Millisecond
	check := of(leakyBucket(10, time.Second, 10))
	c.take(impatient(check, 1*time.Nanosecond), charged(1, 9, place)) // need not wait
	c.take(costing(check, 2), charged(2, 7, 3*place).delayed(place))
	c.take(impatient(check, 1*time.Nanosecond), denied(7, 3*place, 3*place))
	c.take(impatient(check, 1*µs), denied(7, 3*place-1*µs, 3*place))
	c.take(impatient(check, 3*place-1*µs), denied(7, 1*µs, 3*place))
	c.peek(impatient(check, 3*place), passed(7, 3*place).delayed(3*place))
	c.take(impatient(check, 3*place), charged(1, 6, 4*place).delayed(3*place))
	c.take(impatient(costing(check, 6), 3*place), denied(6, place, 4*place)) // it is its first slot that it waits for
	c.tight(impatient(costing(check, 2), 250*time.Millisecond),
		denied(6, 150*time.Millisecond, 4*place),
		denied(7, 1*µs, 250*time.Millisecond+1*µs),
		charged(2, 5, 450*time.Millisecond).delayed(250*time.Millisecond))

	// Who cannot wait charges no other check either, and starves nobody.
	beside := sampleOf(sliding(10, time.Second))
	c.align(time.Second, 250*time.Millisecond)
	c.take(costing(check, 5), charged(5, 5, 5*place))
	for range 20 {
		c.takeAll(expectation{impatient(check, place), denied(5, 4*place, 5*place)}, expectation{beside, passed(10, 0)})
	}
	c.take(check, charged(1, 4, 6*place).delayed(5*place))
}

func queueMaxDelayFull(c *trial) {
	const place = 100 * time.Millisecond
	check := of(leakyBucket(10, time.Second, 5))
	c.take(costing(check, 4), charged(4, 1, 4*place))
	c.take(impatient(costing(check, 2), time.Hour), denied(1, place, 4*place))
	c.take(impatient(costing(check, 2), 3*place), denied(1, place, 4*place)) // both reasons
	c.take(impatient(costing(check, 2), 2*place), denied(1, 2*place, 4*place))
	c.take(impatient(costing(check, 3), 3*place), denied(1, 2*place, 4*place))
	c.take(impatient(costing(check, 6), 1*µs), denied(1, algorithms.Never, 4*place))
}

// queueMaxDelayThirds has turns that begin a part of a microsecond after a whole
// one: who waits only that long is too early.
func queueMaxDelayThirds(c *trial) {
	check := of(leakyBucket(3, time.Second, 3))
	c.take(check, charged(1, 2, third))
	c.take(impatient(check, third-1*µs), denied(2, 1*µs, third))
	c.take(impatient(check, third), charged(1, 1, 2*third-1*µs).delayed(third))
	c.tight(impatient(check, third),
		denied(1, third-1*µs, 2*third-1*µs),
		denied(1, 1*µs, third+1*µs),
		charged(1, 0, 2*third-1*µs).delayed(third))
}

func maxDelayElsewhere(c *trial) {
	c.eachSample(func(s sample) {
		if s.queue {
			return
		}
		s.MaxDelay = 1 * µs
		c.take(costing(s.Check, 9), s.charged(9, 9))
		c.take(s.Check, s.charged(1, 10))
		c.take(s.Check, s.exhausted())
	})
}
