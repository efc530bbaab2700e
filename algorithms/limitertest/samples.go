package limitertest

import (
	"slices"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// A sample stands for its algorithm in cases that are about something else: ten
// units per second, used all at once, a quarter into a window. Each unit of a
// bucket then takes 100 ms.
type sample struct {
	algorithms.Check
	reset func(used int64) time.Duration       // until all are free again
	retry func(used, cost int64) time.Duration // until there is room for the cost
	queue bool                                 // what is admitted waits for its turn
}

// samples has one of each algorithm.
var samples = []sample{
	{
		Check: sampleOf(fixed(10, time.Second)),
		reset: whenUsed(750 * time.Millisecond),
		retry: func(int64, int64) time.Duration { return 750 * time.Millisecond },
	},
	{
		Check: sampleOf(sliding(10, time.Second)),
		reset: whenUsed(1750 * time.Millisecond),
		// The next window has room for the cost beside 10-cost of the used, which
		// are in view when that share of it is left.
		retry: func(used, cost int64) time.Duration {
			return 1750*time.Millisecond - time.Duration((10-cost)*1_000_000/used)*µs
		},
	},
	{
		Check: sampleOf(limit("10/1s sliding_log")),
		reset: whenUsed(time.Second),
		retry: func(int64, int64) time.Duration { return time.Second },
	},
	{Check: sampleOf(limit("10/1s burst 10")), reset: refill, retry: overdue},
	{Check: sampleOf(limit("10/1s burst 10 gcra")), reset: refill, retry: overdue},
	{Check: sampleOf(limit("10/1s burst 10 leaky_bucket")), reset: refill, retry: overdue, queue: true},
}

func sampleOf(l algorithms.Limit) algorithms.Check {
	return check("sample", string(l.Algorithm), l)
}

// whenUsed is the reset of windows, to which it is the same how much was used.
func whenUsed(d time.Duration) func(int64) time.Duration {
	return func(used int64) time.Duration {
		if used == 0 {
			return 0
		}
		return d
	}
}

// refill is how long a bucket takes for so many units.
func refill(units int64) time.Duration { return time.Duration(units) * 100 * time.Millisecond }

// overdue is how long a bucket takes for what it lacks.
func overdue(used, cost int64) time.Duration { return refill(used + cost - 10) }

// under returns the sample with another rule.
func (s sample) under(rule string) sample {
	s.Rule = rule
	return s
}

// charged is the outcome of taking units when so many are used then.
func (s sample) charged(units, used int64) outcome {
	return charged(units, 10-used, s.reset(used)).delayed(s.delay(used - units))
}

// passed is the outcome of room that was not charged when so many are used.
func (s sample) passed(used int64) outcome {
	return passed(10-used, s.reset(used)).delayed(s.delay(used))
}

// delay is how long one has to wait behind those that are before it.
func (s sample) delay(before int64) time.Duration {
	if !s.queue {
		return 0
	}
	return refill(before)
}

// denied is the outcome of asking for one unit when so many are used.
func (s sample) denied(used int64) outcome {
	return denied(10-used, s.retry(used, 1), s.reset(used))
}

// exhausted is the outcome of asking for one unit when all ten are used.
func (s sample) exhausted() outcome { return s.denied(10) }

// eachSample runs f for each algorithm at a time at which the sample's outcomes
// hold.
func (c *trial) eachSample(f func(s sample)) {
	for _, s := range samples {
		c.align(time.Second, 250*time.Millisecond)
		f(s)
	}
}

// allSamples returns all of them at such a time.
func (c *trial) allSamples() []sample {
	c.align(time.Second, 250*time.Millisecond)
	return slices.Clone(samples)
}
