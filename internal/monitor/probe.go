package monitor

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

// probe sends probes to a shard until its circuit may close or the monitor ends.
// Each open circuit has one such goroutine.
func (m *Monitor) probe(c *Circuit) {
	name, opened := m.store.Names(c.shard)[0], time.Now()
	m.logOpen(name, c.now().Err)
	err := m.untilHealthy(c, name)

	if err == nil {
		m.tell(c, true)
	}
	now := time.Now()
	c.recovered(now)
	if err == nil {
		m.tell(c, false)
	}
	after := now.Sub(opened).Round(time.Millisecond)
	switch {
	case err == nil:
		m.logger.Info("ratelimit: circuit closed", "server", name, "after", after)
	case errors.Is(err, transport.ErrGone):
		m.logger.Info("ratelimit: server no longer in use; circuit closed", "server", name, "after", after)
		return
	}
	_ = m.work.Safely(func() error {
		c.witness.renew(m.ctx)
		return nil
	})
}

// tell tells a shard that is back what was not sent meanwhile: before its circuit closes
// all that runs, and afterwards what has begun since.
func (m *Monitor) tell(c *Circuit, all bool) {
	if m.Closing != nil {
		_ = m.work.Safely(func() error {
			m.Closing(c.shard, all)
			return nil
		})
	}
}

// untilHealthy returns nil after enough good probes. Its error means that the
// monitor has ended, or that the shard is gone.
func (m *Monitor) untilHealthy(c *Circuit, name string) error {
	fast := m.store.Budget() / 2
	for good, wanted := 0, c.wanted(); good < wanted; {
		pause := probeInterval - probeInterval/5 + rand.N(2*probeInterval/5+1)
		if err := wait.For(m.ctx, pause); err != nil {
			return err
		}
		begun := time.Now()
		switch err := m.work.Safely(func() error { return m.store.Probe(m.ctx, c.shard) }); {
		case errors.Is(err, transport.ErrGone):
			return err
		case failureOf(err) != noFailure:
			m.calls.count(begun, nil, err)
			if before := c.probeFailed(err); transport.ClassOf(before) != transport.ClassOf(err) {
				m.logOpen(name, err) // for example, a server that returns with another password
			}
			if transport.Answered(err) {
				m.renew(c)
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
func (m *Monitor) renew(c *Circuit) {
	_ = m.work.Safely(func() error {
		if failureOf(c.witness.checkAnew(m.ctx)) == noFailure {
			m.store.Redial(m.ctx, c.shard)
		}
		return nil
	})
}

// logOpen logs why a circuit is open; at level Error if it needs manual action.
func (m *Monitor) logOpen(name string, err error) {
	class, level := transport.ClassOf(err), slog.LevelWarn
	switch class {
	case transport.ClassRefused:
		level = slog.LevelError
	case transport.ClassMisused: // for every key
		class = transport.ClassUnavailable
	}
	m.logger.Log(m.ctx, level, "ratelimit: circuit open", "server", name, "class", string(class), "error", err)
}
