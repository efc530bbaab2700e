// Package monitor is the circuit breaker of a Guard: it stops decisions from being
// sent to servers that do not answer, probes those, and notices when they recover.
//
// Each server has a [Circuit]. Errors that only the server can be to blame for open
// it. Timeouts only call its witness, because a busy process reads good answers too
// late: the witness asks the server on a connection of its own.
package monitor

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/background"
	"github.com/seed75154129/ratelimit/internal/histogram"
	"github.com/seed75154129/ratelimit/internal/sampler"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// A Store is what a Monitor needs of the store that it protects. A shard is a part
// of it that can fail on its own, such as a node of a Redis Cluster. Shards are
// small numbers from 0.
type Store interface {
	// Names returns human-readable shard names.
	Names(shards ...int) []string
	// Probe sends a real, charged check to a shard, in bounded time.
	Probe(ctx context.Context, shard int) error
	// Dial opens a connection of its own to a shard. It returns
	// [errors.ErrUnsupported] if the kind of store allows none.
	Dial(ctx context.Context, shard int) (net.Conn, error)
	// ProbeRequest is the request of a probe, for a connection of Dial.
	ProbeRequest(shard int) ([]byte, error)
	// Redial closes the idle connections to a shard, so that decisions open new ones.
	Redial(ctx context.Context, shard int)
	// Budget is how long a decision may take.
	Budget() time.Duration
	// Drop refuses the decisions that wait to be sent to a shard.
	Drop(shard int)
}

// A Monitor has a circuit for each shard of a store. It runs a goroutine for each
// circuit that is open or suspected; End ends them.
type Monitor struct {
	// Closing, if there is one, is called when a shard is back: before its circuit closes
	// with all, and afterwards without. It is set before Start.
	Closing func(shard int, all bool)

	store   Store
	work    *background.Group
	logger  *slog.Logger
	misused sampler.Sampler

	calls calls

	circuits atomic.Pointer[[]*Circuit] // by shard, of those that were needed so far

	ctx    context.Context // ends with the monitor
	cancel context.CancelFunc
	probes sync.WaitGroup

	mu    sync.Mutex // over adding circuits, beginning probes, and ended
	ended bool
}

// Start sets what a Monitor needs before its first circuit.
func (m *Monitor) Start(s Store, work *background.Group, logger *slog.Logger) {
	m.store, m.work, m.logger = s, work, logger
	m.misused.Every = sampler.LogInterval
	m.calls.took = histogram.New(histogram.Latencies)
	m.ctx, m.cancel = context.WithCancel(context.Background())
}

// Context ends with the Monitor.
func (m *Monitor) Context() context.Context { return m.ctx }

// End ends the probes. It takes as long as one of them may. Afterwards no
// circuit is open.
func (m *Monitor) End() {
	m.mu.Lock()
	m.ended = true
	m.mu.Unlock()
	m.cancel()
	m.probes.Wait()
	for _, c := range m.all() {
		c.witness.end()
	}
}

// Circuit returns a shard's circuit, and makes it if there is none.
func (m *Monitor) Circuit(shard int) *Circuit {
	if all := m.all(); shard < len(all) {
		return all[shard]
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	all := slices.Clone(m.all())
	for len(all) <= shard {
		all = append(all, &Circuit{shard: len(all), witness: m.witness(len(all))})
	}
	m.circuits.Store(&all)
	if w := all[shard].witness; !m.ended {
		m.work.Begin(func() { w.prepare(m.ctx) })
	}
	return all[shard]
}

func (m *Monitor) witness(shard int) *witness {
	return &witness{
		dial:    func(ctx context.Context) (net.Conn, error) { return m.store.Dial(ctx, shard) },
		request: func() ([]byte, error) { return m.store.ProbeRequest(shard) },
		timeout: m.store.Budget() * 4 / 5, // so that a circuit opens within two budgets
	}
}

// Prepare opens the connection of the first shard's witness.
func (m *Monitor) Prepare(ctx context.Context) { m.Circuit(0).witness.prepare(ctx) }

// all returns the circuits by shard.
func (m *Monitor) all() []*Circuit {
	if all := m.circuits.Load(); all != nil {
		return *all
	}
	return nil
}

// AllOpen reports whether nothing can be sent.
func (m *Monitor) AllOpen() bool {
	all := m.all()
	return len(all) > 0 && !slices.ContainsFunc(all, func(c *Circuit) bool { return !c.IsOpen() })
}

// States returns the states of the circuits that were needed so far, by shard.
func (m *Monitor) States() []State {
	all := m.all()
	states := make([]State, len(all))
	for i, c := range all {
		states[i] = c.now()
	}
	return states
}

// Metrics returns what the Monitor has counted; zeros before Start.
func (m *Monitor) Metrics() []algorithms.Metric {
	states := m.States()
	var open, opened int64
	for _, s := range states {
		opened += s.Opened
		if s.Open {
			open++
		}
	}
	metrics := []algorithms.Metric{
		{Name: "ratelimit_breaker_shards", Value: float64(len(states))},
		{Name: "ratelimit_breaker_open_shards", Value: float64(open)},
		{Name: "ratelimit_breaker_transitions_total", Labels: []string{"to", "open"}, Value: float64(opened)},
		{Name: "ratelimit_breaker_transitions_total", Labels: []string{"to", "closed"}, Value: float64(opened - open)},
		cmp.Or(m.calls.took, histogram.New(histogram.Latencies)).Metric("ratelimit_store_duration_seconds"),
	}
	for i, class := range errorClasses {
		metrics = append(metrics, algorithms.Metric{
			Name: "ratelimit_store_errors_total", Labels: []string{"class", string(class)}, Value: float64(m.calls.failed[i].Load()),
		})
	}
	return metrics
}

// errorClasses are the values of the label class. All are there from the start.
var errorClasses = [...]transport.ErrorClass{
	transport.ClassUnreachable, transport.ClassBusy, transport.ClassUnavailable,
	transport.ClassMoved, transport.ClassRefused, transport.ClassMisused, transport.ClassUnknown,
}

// calls counts the calls to a store, and the probes that failed.
type calls struct {
	took   *histogram.Histogram
	failed [len(errorClasses)]atomic.Uint64
}

// count counts a call that has just returned.
func (c *calls) count(begun time.Time, results []algorithms.Result, err error) {
	c.took.Observe(time.Since(begun))
	if err != nil {
		c.fail(err)
		return
	}
	for i := range results {
		if results[i].Err != nil {
			c.fail(results[i].Err)
		}
	}
}

func (c *calls) fail(err error) {
	if i := slices.Index(errorClasses[:], transport.ClassOf(err)); i >= 0 {
		c.failed[i].Add(1)
	}
}
