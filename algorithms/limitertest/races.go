package limitertest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

var raceCases = []testCase{
	{name: "requests at the same time are admitted exactly up to the limit", run: raceOnOne},
	{name: "requests at the same time charge all rules or none", run: raceOnTwo},
	{name: "requests at the same time are banned after exactly so many denials", run: raceToBan},
}

// racers is less than the connections that a client's pool has at least.
const racers = 8

// race runs take in goroutines, n times each, and counts what was allowed. It
// is given the number of the goroutine and of the time.
func (c *trial) race(n int, take func(racer, n int) []algorithms.Check) (allowed []int64) {
	return c.raceWith(n, func(racer, i int) bool {
		d, err := c.limiter.Take(c.Context(), take(racer, i)...)
		if err != nil {
			c.Errorf("Take: %v", err)
		}
		return d.Allowed
	})
}

// raceWith is race with what each goroutine does, which reports whether it was
// allowed.
func (c *trial) raceWith(n int, do func(racer, n int) bool) (allowed []int64) {
	allowed = make([]int64, racers)
	start := make(chan struct{})
	var running sync.WaitGroup
	for racer := range racers {
		running.Go(func() {
			<-start
			for i := range n {
				if do(racer, i) {
					allowed[racer]++
				}
			}
		})
	}
	close(start)
	running.Wait()
	return allowed
}

func sum(ns []int64) (total int64) {
	for _, n := range ns {
		total += n
	}
	return total
}

func raceOnOne(c *trial) {
	c.eachSample(func(s sample) {
		allowed := c.race(5, func(int, int) []algorithms.Check { return []algorithms.Check{s.Check} })
		if n := sum(allowed); n != 10 {
			c.Errorf("%s: %d of 40 requests allowed (%v), want 10", name(s.Check), n, allowed)
		}
		c.take(s.Check, s.exhausted())
	})
}

// raceOnTwo has every request pass a rule of its half of the goroutines, which
// admits six, and one of all, which admits ten. As checks come in either order,
// it also finds limiters that lock them in theirs.
//
// Where the rules are counted on different servers, two requests may deny each
// other; what they left is then taken by one alone.
func raceOnTwo(c *trial) {
	c.eachSample(func(s sample) {
		shared := s.under("shared").Check
		rate := int64(6)
		if s.queue {
			rate = 20 // never denies, because a queue takes back only its last place
		}
		own := func(racer int) algorithms.Check {
			return check("own", fmt.Sprint(racer%2, s.Limit.Algorithm), fixed(rate, time.Hour))
		}
		allowed := c.race(5, func(racer, n int) []algorithms.Check {
			if n%2 == 0 {
				return []algorithms.Check{shared, own(racer)}
			}
			return []algorithms.Check{own(racer), shared}
		})
		halves := make([]int64, 2)
		for racer, n := range allowed {
			halves[racer%2] += n
		}
		for half := range halves {
			for d := (algorithms.Decision{Allowed: true}); d.Allowed; {
				var err error
				if d, err = c.limiter.Take(c.Context(), own(half), shared); err != nil {
					c.Fatal(err)
				}
				if d.Allowed {
					halves[half]++
				}
			}
		}
		if n := sum(halves); n != 10 {
			c.Errorf("%s: %d requests allowed, %v of the racing ones, want 10", name(shared), n, allowed)
		}
		c.take(shared, s.exhausted())
		for half, n := range halves {
			reset := whenUsed(c.untilNext(time.Hour))
			c.holds(own(half), rate-n, reset(n))
		}
	})
}

func raceToBan(c *trial) {
	c.eachSample(func(s sample) {
		check := banning(s.Check, 20, time.Hour, time.Hour)
		c.take(costing(check, 10), s.charged(10, 10))
		var unbanned atomic.Int64
		allowed := c.raceWith(5, func(int, int) bool {
			d, err := c.limiter.Take(c.Context(), check)
			if err != nil {
				c.Errorf("Take: %v", err)
				return false
			}
			if d.Results[0].BannedFor == 0 {
				unbanned.Add(1)
			}
			return d.Allowed
		})
		if sum(allowed) != 0 || unbanned.Load() != 19 {
			c.Errorf("%s: %d of 40 denials were without a ban, and %v allowed; want 19 and none", name(check), unbanned.Load(), allowed)
		}
		c.take(check, s.exhausted().banned(time.Hour))
	})
}
