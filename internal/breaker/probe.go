package breaker

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/seed75154129/ratelimit/internal/transport"
	"github.com/seed75154129/ratelimit/internal/wait"
)

// probeInterval is the average time between two probes. Each differs from it by
// up to a fifth, so that processes that lost Redis together do not return
// together.
const probeInterval = 200 * time.Millisecond

// probe sends probes to a shard until its circuit may close or the breaker ends.
// Each open circuit has one such goroutine.
func (b *Breaker) probe(c *Circuit) {
	name, opened := b.store.Names(c.shard)[0], time.Now()
	b.logOpen(name, c.now().Err)
	err := b.untilHealthy(c, name)

	if err == nil {
		b.tell(c, true)
	}
	now := time.Now()
	c.recovered(now)
	if err == nil {
		b.tell(c, false)
	}
	after := now.Sub(opened).Round(time.Millisecond)
	switch {
	case err == nil:
		b.logger.Info("ratelimit: circuit closed", "server", name, "after", after)
	case errors.Is(err, transport.ErrGone):
		b.logger.Info("ratelimit: server no longer in use; circuit closed", "server", name, "after", after)
		return
	}
	_ = b.work.Safely(func() error {
		c.witness.renew(b.ctx)
		return nil
	})
}

// tell tells a shard that is back what was not sent meanwhile: before its circuit closes
// all that runs, and afterwards what has begun since.
func (b *Breaker) tell(c *Circuit, all bool) {
	if b.Closing != nil {
		_ = b.work.Safely(func() error {
			b.Closing(c.shard, all)
			return nil
		})
	}
}

// untilHealthy returns nil after enough good probes. Its error means that the
// breaker has ended, or that the shard is gone.
func (b *Breaker) untilHealthy(c *Circuit, name string) error {
	fast := b.store.Budget() / 2
	for good, wanted := 0, c.wanted(); good < wanted; {
		pause := probeInterval - probeInterval/5 + rand.N(2*probeInterval/5+1)
		if err := wait.For(b.ctx, pause); err != nil {
			return err
		}
		begun := time.Now()
		switch err := b.work.Safely(func() error { return b.store.Probe(b.ctx, c.shard) }); {
		case errors.Is(err, transport.ErrGone):
			return err
		case failureOf(err) != noFailure:
			b.calls.count(begun, nil, err)
			if before := c.probeFailed(err); transport.ClassOf(before) != transport.ClassOf(err) {
				b.logOpen(name, err) // for example, a server that returns with another password
			}
			if transport.Answered(err) {
				b.renew(c)
			}
			good = 0
		case err != nil && transport.ClassOf(err) == transport.ClassBusy:
			good = 0 // nothing was sent
		case time.Since(begun) <= fast:
			good += slowProbes
		default:
			good++
		}
	}
	return nil
}

// renew probes a shard that answers with errors on a new connection. If it is well there,
// decisions need new connections, too.
func (b *Breaker) renew(c *Circuit) {
	_ = b.work.Safely(func() error {
		if failureOf(c.witness.checkAnew(b.ctx)) == noFailure {
			b.store.Redial(b.ctx, c.shard)
		}
		return nil
	})
}

// logOpen logs why a circuit is open; at level Error if it needs manual action.
func (b *Breaker) logOpen(name string, err error) {
	class, level := transport.ClassOf(err), slog.LevelWarn
	switch class {
	case transport.ClassRefused:
		level = slog.LevelError
	case transport.ClassMisused: // for every key
		class = transport.ClassUnavailable
	}
	b.logger.Log(b.ctx, level, "ratelimit: circuit open", "server", name, "class", string(class), "error", err)
}
