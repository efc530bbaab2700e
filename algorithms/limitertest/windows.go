package limitertest

import (
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

var windowCases = []testCase{
	{name: "a fixed window admits its rate and then denies", run: fixedWindowAdmitsRate},
	{name: "a fixed window begins afresh at multiples of its period", run: fixedWindowBeginsAfresh},
	{name: "a fixed window admits twice its rate around a boundary", run: fixedWindowAroundBoundary},
	{name: "a fixed window counts terabytes", run: fixedWindowTerabyte},
	{name: "a sliding window admits its rate and then denies", run: slidingWindowAdmitsRate},
	{name: "a sliding window admits its rate around a boundary", run: slidingWindowAroundBoundary},
	{name: "a sliding window weighs the last window by its share in view", run: slidingWindowWeighsLast},
	{name: "a sliding window forgets the window before the last", run: slidingWindowForgets},
	{name: "a sliding window is exact at the largest rate", run: slidingWindowLargest},
	{name: "no algorithm means sliding window", run: defaultAlgorithm},
}

func fixedWindowAdmitsRate(c *trial) {
	check := of(fixed(5, time.Second))
	c.align(time.Second, 250*time.Millisecond)
	const left = 750 * time.Millisecond
	for n := range int64(5) {
		c.take(check, charged(1, 4-n, left))
	}
	c.take(check, denied(0, left, left))
	c.take(check, denied(0, left, left))
}

func fixedWindowBeginsAfresh(c *trial) {
	for _, period := range []time.Duration{37 * µs, time.Second, 7 * time.Second, time.Minute, 36 * time.Hour} {
		check := of(fixed(2, period))
		for _, phase := range []time.Duration{0, 1 * µs, (period / 3).Truncate(1 * µs), period - 1*µs} {
			c.align(period, phase)
			c.take(check, charged(1, 1, period-phase))
			c.take(check, charged(1, 0, period-phase))
			c.take(check, denied(0, period-phase, period-phase))
		}
	}
}

func fixedWindowAroundBoundary(c *trial) {
	check := of(fixed(5, time.Second))
	c.align(time.Second, time.Second-1*µs)
	for n := range int64(5) {
		c.take(check, charged(1, 4-n, 1*µs))
	}
	c.take(check, denied(0, 1*µs, 1*µs))
	c.wait(1 * µs)
	for n := range int64(5) {
		c.take(check, charged(1, 4-n, time.Second))
	}
	c.take(check, denied(0, time.Second, time.Second))
}

func fixedWindowTerabyte(c *trial) {
	const most = 999_999_999_999_999
	check := of(fixed(most, time.Hour))
	c.align(time.Hour, 0)
	c.take(costing(check, most-1), charged(most-1, 1, time.Hour))
	c.take(costing(check, 2), denied(1, time.Hour, time.Hour))
	c.take(check, charged(1, 0, time.Hour))
	c.take(check, denied(0, time.Hour, time.Hour))
}

func slidingWindowAdmitsRate(c *trial) {
	check := of(sliding(5, time.Second))
	c.align(time.Second, 250*time.Millisecond)
	for n := range int64(5) {
		c.take(check, charged(1, 4-n, 1750*time.Millisecond))
	}
	// In the next window, one unit of five is out of view after a fifth.
	c.take(check, denied(0, 950*time.Millisecond, 1750*time.Millisecond))
	c.take(check, denied(0, 950*time.Millisecond, 1750*time.Millisecond))
}

func slidingWindowAroundBoundary(c *trial) {
	check := of(sliding(5, time.Second))
	c.align(time.Second, time.Second-1*µs)
	for n := range int64(5) {
		c.take(check, charged(1, 4-n, time.Second+1*µs))
	}
	c.take(check, denied(0, 200*time.Millisecond+1*µs, time.Second+1*µs))
	c.wait(1 * µs)
	// From here on, one unit goes out of view each fifth of the window.
	const fifth = 200 * time.Millisecond
	c.take(check, denied(0, fifth, time.Second))
	c.wait(fifth)
	for reset := 9 * fifth; reset >= 6*fifth; reset -= fifth {
		c.take(check, charged(1, 0, reset))
		c.take(check, denied(0, fifth, reset))
		c.wait(fifth)
	}
	c.take(check, charged(1, 0, 2*time.Second))
}

func slidingWindowWeighsLast(c *trial) {
	check := of(sliding(10, 10*time.Second))
	c.align(10*time.Second, 2500*time.Millisecond)
	c.take(costing(check, 8), charged(8, 2, 17500*time.Millisecond))
	c.wait(10 * time.Second) // three quarters of the eight are in view
	c.holds(check, 4, 7500*time.Millisecond)
	for n := range int64(4) {
		c.take(check, charged(1, 3-n, 17500*time.Millisecond))
	}
	// One more has room when five of the eight are in view: 6.25 s from the end.
	c.take(check, denied(0, 1250*time.Millisecond, 17500*time.Millisecond))

	// A part of a unit takes a whole one.
	c.wait(1 * µs)
	c.holds(check, 0, 17500*time.Millisecond-1*µs)
	c.wait(1250*time.Millisecond - 2*µs)
	c.holds(check, 0, 16250*time.Millisecond+1*µs)
	c.wait(1 * µs)
	c.holds(check, 1, 16250*time.Millisecond)
}

func slidingWindowForgets(c *trial) {
	check := of(sliding(10, time.Second))
	c.align(time.Second, 0)
	c.take(costing(check, 10), charged(10, 0, 2*time.Second))
	c.wait(2*time.Second - 1*µs)
	c.holds(check, 9, 1*µs)
	c.wait(1 * µs)
	c.take(costing(check, 10), charged(10, 0, 2*time.Second))
	c.wait(time.Hour)
	c.take(costing(check, 10), charged(10, 0, 2*time.Second))
}

// slidingWindowLargest has a rate whose square is just below 2^53, the end of
// what a double holds exactly.
func slidingWindowLargest(c *trial) {
	const day = 24 * time.Hour
	check := of(sliding(94_906_265, day))
	c.align(day, 1*µs)
	c.take(costing(check, 94_906_264), charged(94_906_264, 1, 2*day-1*µs))
	c.wait(36*time.Hour + 6*µs) // 43,199,999,993 µs of the window are left
	const left = 12*time.Hour - 7*µs
	// ⌈94906264 · 43199999993/86400000000⌉ = 47453132 are in view.
	c.holds(check, 47_453_133, left)
	c.take(costing(check, 47_453_133), charged(47_453_133, 0, left+day))
	// 47453131 fit: until ⌊47453131 · 86400000000/94906264⌋ = 43199999089 µs are left.
	c.tight(check,
		denied(0, 904*µs, left+day),
		denied(0, 1*µs, left+day-903*µs),
		charged(1, 0, left+day-904*µs))
}

func defaultAlgorithm(c *trial) {
	unnamed := of(algorithms.Limit{Rate: 2, Period: time.Second})
	named := of(sliding(2, time.Second))
	c.align(time.Second, 250*time.Millisecond)
	c.take(unnamed, charged(1, 1, 1750*time.Millisecond))
	c.take(named, charged(1, 0, 1750*time.Millisecond))
	c.take(unnamed, denied(0, 1250*time.Millisecond, 1750*time.Millisecond))
}
