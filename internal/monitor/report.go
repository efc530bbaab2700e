package monitor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// Report counts the outcome of a request's checks: one call for each circuit. The
// circuit of each result stands at its place. If err is not nil, no check was decided.
func (m *Monitor) Report(ctx context.Context, sent time.Time, circuits []*Circuit, results []algorithms.Result, err error) {
	m.calls.count(sent, results, err)
	var now time.Time // read only where something is counted
	for i, c := range circuits {
		if slices.Contains(circuits[:i], c) {
			continue
		}
		var failure error
		for j := i; j < len(circuits) && failure == nil; j++ {
			if circuits[j] == c {
				failure = results[j].Err
			}
		}
		if failure == nil && !c.is(watched) {
			continue // the usual case
		}
		if now.IsZero() {
			now = time.Now()
		}
		m.count(ctx, sent, now, c, failure)
	}
}

// count counts one call through a circuit.
func (m *Monitor) count(ctx context.Context, sent, now time.Time, c *Circuit, err error) {
	kind := failureOf(err)
	class := transport.ClassOf(err)
	if kind == noFailure {
		if class == "" {
			c.succeeded(sent, now)
		}
		return
	}
	if class == transport.ClassMisused {
		m.misused.Do(func() {
			m.logger.ErrorContext(ctx, "ratelimit: unexpected Redis error; manual action required", "error", err)
		})
	}
	switch c.failed(sent, now, kind, err) {
	case suspected:
		m.checkServer(c, class == transport.ClassMisused, now)
	case broken:
		m.trip(c)
	}
}

// checkServer probes a shard that is suspected, and opens its circuit if the probe fails, or
// if the witness cannot connect at all. After misused answers, the probe takes the way of
// decisions, at most once in probeInterval. After timeouts, the witness probes.
func (m *Monitor) checkServer(c *Circuit, misused bool, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if misused && now.Sub(c.checked) < probeInterval {
		c.cleared() // as a moment ago
		return
	}
	if m.ended || !c.witness.checking.CompareAndSwap(false, true) {
		return
	}
	c.checked = now
	m.probes.Go(func() {
		defer c.witness.checking.Store(false)
		probe, how := c.witness.check, "probe on its own connection"
		if misused {
			probe, how = func(ctx context.Context) error { return m.store.Probe(ctx, c.shard) }, "probe for a key of its own"
		}
		err := m.work.Safely(func() error { return probe(m.ctx) })
		switch {
		case failureOf(err) == noFailure, misused && IsTimeout(err):
			c.cleared()
			return
		case !errors.Is(err, errors.ErrUnsupported):
			_ = c.probeFailed(fmt.Errorf("failmode: %s: %w", how, err)) // this is why, and not the failures before
		}
		m.trip(c)
	})
}

// trip opens a circuit and has it probed.
func (m *Monitor) trip(c *Circuit) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.ended && c.open(time.Now()) {
		m.store.Drop(c.shard)
		m.probes.Go(func() { m.probe(c) })
	}
}
