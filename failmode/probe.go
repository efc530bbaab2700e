package failmode

import (
	"cmp"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// probe asks a shard until it may be used again, or the breaker is closed. Each
// open circuit has one such goroutine. It says what happens, once each way.
func (b *Breaker) probe(c *circuit) {
	name, opened := b.Next.Names(c.shard)[0], time.Now()
	err := c.state().Err
	b.logger.Warn("ratelimit: the store does not answer; each rule follows its fail mode",
		"down", name, "class", string(algorithms.ClassOf(err)), "error", err)
	well := b.untilWell(c)

	now := time.Now()
	c.mu.Lock()
	c.since = now
	c.isOpen.Store(false)
	c.mu.Unlock()
	b.open.Add(-1)
	if well {
		b.logger.Info("ratelimit: the store answers again", "up", name, "after", now.Sub(opened).Round(time.Millisecond))
	}
}

// untilWell reports whether there were enough good probes before the breaker was
// closed.
func (b *Breaker) untilWell(c *circuit) bool {
	every := cmp.Or(b.ProbeEvery, defaultProbeEvery)
	fast := cmp.Or(b.Fast, algorithms.DefaultBudget/2)
	for good := 0; good < slowProbes*c.patience; {
		// Processes that lost Redis in the same moment must not come back in one.
		if !b.wait(every - every/5 + rand.N(2*every/5+1)) { //nolint:gosec // not a secret
			return false
		}
		begun := time.Now()
		switch err := b.Next.Probe(b.ctx, c.shard); {
		case fails(err):
			c.mu.Lock()
			c.err = err
			c.mu.Unlock()
			good = 0
		case time.Since(begun) <= fast:
			good += slowProbes
		default:
			good++
		}
	}
	return true
}

// wait reports whether the time was over before the breaker was closed.
func (b *Breaker) wait(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-b.ctx.Done():
		return false
	}
}

// A sampler lets one through every ten seconds, so that a log stays readable.
type sampler struct {
	mu   sync.Mutex
	last time.Time
}

func (s *sampler) do(f func()) {
	s.mu.Lock()
	now := time.Now()
	due := now.Sub(s.last) >= 10*time.Second
	if due {
		s.last = now
	}
	s.mu.Unlock()
	if due {
		f()
	}
}
