package failmode

import (
	"cmp"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// probe asks a shard until it may be used again, or the breaker is closed. Each
// open circuit has one such goroutine. It says what happens, once each way.
func (b *Breaker) probe(c *circuit) {
	name, opened := b.Next.Names(c.shard)[0], time.Now()
	err := b.untilWell(c, name)

	now := time.Now()
	c.mu.Lock()
	c.since = now
	c.isOpen.Store(false)
	c.mu.Unlock()
	b.open.Add(-1)
	after := now.Sub(opened).Round(time.Millisecond)
	switch {
	case err == nil:
		b.logger.Info("ratelimit: the store answers again", "up", name, "after", after)
	case errors.Is(err, algorithms.ErrGone):
		b.logger.Info("ratelimit: what it counted is counted elsewhere now", "gone", name, "after", after)
	}
}

// untilWell returns nil when there were enough good probes, or why there will be
// none: the breaker is closed, or nothing is counted there.
func (b *Breaker) untilWell(c *circuit, name string) error {
	every := cmp.Or(b.ProbeEvery, defaultProbeEvery)
	fast := cmp.Or(b.Fast, algorithms.DefaultBudget/2)
	b.say(name, c.state().Err)
	for good := 0; good < slowProbes*c.patience; {
		// Processes that lost Redis in the same moment must not come back in one.
		if !b.wait(every - every/5 + rand.N(2*every/5+1)) { //nolint:gosec // not a secret
			return b.ctx.Err()
		}
		begun := time.Now()
		switch err := b.Next.Probe(b.ctx, c.shard); {
		case errors.Is(err, algorithms.ErrGone):
			return err
		case fails(err):
			b.tell(begun, algorithms.Decision{}, err)
			if was := c.failed(err); algorithms.ClassOf(was) != algorithms.ClassOf(err) {
				b.say(name, err) // as where a server comes back with another password
			}
			good = 0
		case time.Since(begun) <= fast:
			good += slowProbes
		default:
			good++
		}
	}
	return nil
}

// failed notes the last failure and returns the one before.
func (c *circuit) failed(err error) (was error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was, c.err = c.err, err
	return was
}

// say logs why a circuit is open: as an error where that does not mend itself.
func (b *Breaker) say(name string, err error) {
	class, level := algorithms.ClassOf(err), slog.LevelWarn
	if class == algorithms.ClassRefused {
		level = slog.LevelError
	}
	b.logger.Log(b.ctx, level, "ratelimit: the store does not answer; each rule follows its fail mode",
		"down", name, "class", string(class), "error", err)
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
