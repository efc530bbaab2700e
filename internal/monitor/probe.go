package monitor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/seed75154129/ratelimit/internal/transport"
	"github.com/seed75154129/ratelimit/internal/wait"
)

// probeInterval is the average time between two probes of an open circuit, and the least
// between two of a watched one. Each differs from it by up to a fifth while the circuit
// is open, so that processes that lost Redis together do not return together.
const probeInterval = 200 * time.Millisecond

// begin runs f in a goroutine that End waits for.
func (m *Monitor) begin(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.ended {
		m.probes.Go(f)
	}
}

// safely calls a limiter of a user's own, which may panic.
func (m *Monitor) safely(f func() error) error { return m.work.Safely(f) }

// check probes a shard that is suspected because of an error, and opens its circuit if
// that fails.
func (m *Monitor) check(c *Circuit, because error) {
	begun := time.Now()
	anew, err := m.ask(c.shard)
	if m.ctx.Err() != nil { // End has ended the probe, which says nothing about the shard
		c.abandon()
		return
	}
	gone := errors.Is(err, transport.ErrGone)
	if kindOf(err) == fine || gone {
		err = nil
	} else {
		m.calls.count(begun, nil, err)
		err = fmt.Errorf("failmode: probe: %w; before it, a decision: %s", err, because.Error())
	}
	now := time.Now()
	if !c.judge(err, now) {
		m.trip(c)
		return
	}
	answered := transport.Answered(because)
	if answered {
		m.logUnexpected(m.ctx, because)
	}
	if err != nil || gone {
		return
	}
	if answered && !anew {
		anew = c.asksAnew(now) && m.askAnew(c.shard, because) == nil
	}
	if answered && anew {
		m.redial(c)
	}
	if anew { // on another server, perhaps, which may have missed what the old one counted
		m.tell(c, true)
	}
}

// redial closes the idle connections of decisions to a shard that answers errors on old
// connections and is well on a new one: its address has come to mean another server, or
// permissions have changed. go-redis would keep them.
func (m *Monitor) redial(c *Circuit) {
	_ = m.safely(func() error { m.store.Redial(m.ctx, c.shard); return nil })
}

// ask probes a shard, and returns what is wrong with it. Where the connection that is kept
// fails, a new one is tried before the shard is blamed: a server or a firewall may have
// closed the old one. Where the store allows no such connections, the probe goes the way of
// all decisions.
func (m *Monitor) ask(shard int) (anew bool, _ error) {
	err := m.safely(func() error { return m.store.Ask(m.ctx, shard, false) })
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return false, m.safely(func() error { return m.store.Probe(m.ctx, shard) })
	case kindOf(err) == fine:
		return false, nil
	}
	return true, m.askAnew(shard, err)
}

// askAnew probes a shard on a new connection, after an error on an old one. A busy process
// may have no time for it, and then silence on the old one stands.
func (m *Monitor) askAnew(shard int, before error) error {
	ctx := m.ctx
	if kindOf(before) == late { // so that a circuit opens soon
		within, cancel := context.WithTimeout(ctx, m.store.Budget()*2/5)
		defer cancel()
		ctx = within
	}
	err := m.safely(func() error { return m.store.Ask(ctx, shard, true) })
	if err != nil && kindOf(before) == late {
		return before
	}
	return err
}

// trip opens a circuit, and sends probes until it may close or the monitor ends.
func (m *Monitor) trip(c *Circuit) {
	if !c.open(time.Now()) {
		return
	}
	m.store.Drop(c.shard)
	name, opened := m.store.Names(c.shard)[0], time.Now()
	m.logOpen(name, c.now().Err)
	err := m.untilWell(c, name)
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
		m.Prepare(m.ctx, c.shard, true) // the connection may have ended with the outage
	case errors.Is(err, transport.ErrGone):
		m.logger.Info("ratelimit: server no longer in use; circuit closed", "server", name, "after", after)
	}
}

// tell tells a shard that is back all that runs, or only what has begun since.
func (m *Monitor) tell(c *Circuit, all bool) {
	if m.Back != nil {
		_ = m.safely(func() error {
			m.Back(c.shard, all)
			return nil
		})
	}
}

// untilWell returns nil after enough good probes, which go the way of all decisions: that
// is what the circuit closes for. Its error means that the monitor has ended, or that the
// shard is gone.
func (m *Monitor) untilWell(c *Circuit, name string) error {
	fast := m.store.Budget() / 2
	for good, wanted := 0, c.wanted(); good < wanted; {
		pause := probeInterval - probeInterval/5 + rand.N(2*probeInterval/5+1)
		if err := wait.For(m.ctx, pause); err != nil {
			return err
		}
		begun := time.Now()
		err := m.safely(func() error { return m.store.Probe(m.ctx, c.shard) })
		switch {
		case errors.Is(err, transport.ErrGone):
			return err
		case kindOf(err) != fine:
			good = 0
			m.calls.count(begun, nil, err)
			if before := c.probeFailed(err); transport.ClassOf(before) != transport.ClassOf(err) {
				m.logOpen(name, err) // for example, a server that returns with another password
			}
			if transport.Answered(err) && m.askAnew(c.shard, err) == nil {
				m.redial(c)
			}
		case err != nil:
			good = 0 // nothing was sent
		case time.Since(begun) <= fast:
			good += slowProbes
		default:
			good++
		}
	}
	return nil
}

// logOpen logs why a circuit is open; at level Error if it needs manual action.
func (m *Monitor) logOpen(name string, err error) {
	class, level := transport.ClassOf(err), slog.LevelWarn
	if class == transport.ClassRefused {
		level = slog.LevelError
	}
	m.logger.Log(m.ctx, level, "ratelimit: circuit open", "server", name, "class", string(class), "error", err)
}
