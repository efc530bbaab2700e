package failmode

import (
	"cmp"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// probe asks a shard until it may be used again, or the breaker is closed. Each
// open circuit has one such goroutine.
func (b *Breaker) probe(shard int) {
	c := &b.circuits[shard]
	defer b.shut(c)
	if len(b.circuits) > 1 && !b.wait(together) {
		return
	}
	b.announce()
	every := cmp.Or(b.ProbeEvery, defaultProbeEvery)
	fast := cmp.Or(b.Fast, algorithms.DefaultBudget/2)
	for good := 0; good < slowProbes*c.patience; {
		// Processes that lost Redis in the same moment must not come back in one.
		if !b.wait(every - every/5 + rand.N(2*every/5+1)) { //nolint:gosec // not a secret
			return
		}
		begun := time.Now()
		switch err := b.Next.Probe(b.ctx, shard); {
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

// announce logs all circuits that are open and were not logged yet.
func (b *Breaker) announce() {
	var fresh []int
	b.mu.Lock()
	for i := range b.circuits {
		if c := &b.circuits[i]; c.isOpen.Load() && !c.announced {
			c.announced = true
			fresh = append(fresh, i)
		}
	}
	b.mu.Unlock()
	if len(fresh) > 0 {
		err := b.circuits[fresh[0]].state().Err
		b.logger.Warn("ratelimit: the store does not answer; each rule follows its fail mode",
			"down", strings.Join(b.Next.Names(fresh...), ", "), "class", string(algorithms.ClassOf(err)), "error", err)
	}
}

// shut closes a circuit.
func (b *Breaker) shut(c *circuit) {
	now := time.Now()
	c.mu.Lock()
	c.since = now
	c.isOpen.Store(false)
	c.mu.Unlock()

	b.mu.Lock()
	defer b.mu.Unlock()
	c.announced = false
	if b.open.Add(-1) == 0 && !b.closed {
		b.logger.Info("ratelimit: the store answers again", "after", now.Sub(b.down).Round(time.Millisecond))
	}
}

// A sampler lets one through every ten seconds, so that a log stays readable.
type sampler struct{ last atomic.Int64 }

func (s *sampler) do(f func()) {
	now, last := time.Now().UnixNano(), s.last.Load()
	if now-last >= int64(10*time.Second) && s.last.CompareAndSwap(last, now) {
		f()
	}
}
