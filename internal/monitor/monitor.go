// Package monitor says whether the servers behind a Guard are well, and keeps decisions
// from those that are not.
//
// Each server has a [Circuit]. A decision that fails only wakes the [Monitor]; whether the
// server is at fault, a probe says: a real decision on keys that no client has. While its
// circuit is open, a server is sent nothing but probes.
package monitor

import (
	"cmp"
	"context"
	"hash/maphash"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/background"
	"github.com/seed75154129/ratelimit/internal/histogram"
	"github.com/seed75154129/ratelimit/internal/sampler"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// A Store is what a Monitor needs of the store that it watches. A shard is a part
// of it that can fail on its own, such as a node of a Redis Cluster. Shards are
// small numbers from 0.
type Store interface {
	// Names returns human-readable shard names.
	Names(shards ...int) []string
	// Budget is how long a decision may take.
	Budget() time.Duration
	// Probe sends a real, charged decision to a shard, in bounded time, by the way of all
	// decisions.
	Probe(ctx context.Context, shard int) error
	// Ask does so on a connection that nothing else uses: the one that is kept, or a new
	// one, which is kept then. The error is [errors.ErrUnsupported] if the kind of store
	// allows none.
	Ask(ctx context.Context, shard int, anew bool) error
	// HangUp closes the connections of Ask.
	HangUp()
	// Redial closes the idle connections to a shard, so that decisions open new ones.
	Redial(ctx context.Context, shard int)
	// Drop refuses the decisions that wait to be sent to a shard.
	Drop(shard int)
	// Warnings lists options that make an outage worse.
	Warnings() []string
	// ServerWarnings asks the servers whether they may forget what they count.
	ServerWarnings(ctx context.Context) ([]string, error)
}

// A Monitor has a circuit for each shard of a store. It runs a goroutine for each
// circuit that is open or suspected; End ends them.
type Monitor struct {
	// Back, if there is one, is called when a shard is back: before its circuit closes with
	// all, and afterwards without; and with all when another server may have taken its place
	// and no circuit has opened. It is set before the first circuit.
	Back func(shard int, all bool)

	store      Store
	work       *background.Group
	logger     *slog.Logger
	unexpected sampler.Sampler // to log
	warm       atomic.Bool     // there is a connection to shard 0
	asked      atomic.Bool     // the servers have said whether they may forget
	seed       maphash.Seed    // of the keys of failures
	calls      calls

	circuits atomic.Pointer[[]*Circuit] // by shard, of those that were needed so far

	ctx    context.Context // ends with the monitor
	cancel context.CancelFunc
	probes sync.WaitGroup

	mu    sync.Mutex // over adding circuits, beginning probes, and ended
	ended bool
}

// Start sets what a Monitor needs before its first circuit.
func (m *Monitor) Start(s Store, work *background.Group, logger *slog.Logger) {
	m.store, m.work, m.logger, m.seed = s, work, logger, maphash.MakeSeed()
	m.unexpected.Every = sampler.LogInterval
	m.calls.took = histogram.New(histogram.Latencies)
	m.ctx, m.cancel = context.WithCancel(context.Background())
	if warned := s.Warnings(); len(warned) > 0 {
		logger.Warn("ratelimit: Redis client options make outages worse; use algorithms.FailFast", "options", strings.Join(warned, "; "))
	}
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
	m.store.HangUp()
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
		all = append(all, &Circuit{shard: len(all)})
	}
	m.circuits.Store(&all)
	if !m.ended && (shard > 0 || !m.warm.Load()) {
		m.work.Begin(func() { m.Prepare(m.ctx, shard, false) })
	}
	return all[shard]
}

// Prepare opens a connection for the probes of a shard, if there is none or if it is to be
// a new one. It asks whether the servers may forget what they count until one has said so.
func (m *Monitor) Prepare(ctx context.Context, shard int, anew bool) {
	err := m.safely(func() error { return m.store.Ask(ctx, shard, anew) })
	if err == nil && shard == 0 {
		m.warm.Store(true) // otherwise there is time to try again
	}
	if m.asked.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	warned, err := m.store.ServerWarnings(ctx)
	if err != nil && !transport.Answered(err) { // INFO may be forbidden, which is no mistake
		return
	}
	if m.asked.CompareAndSwap(false, true) && len(warned) > 0 {
		m.logger.Warn("ratelimit: Redis may evict limiter keys", "servers", strings.Join(warned, "; "))
	}
}

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
	transport.ClassTimeout, transport.ClassConnection, transport.ClassAnswer, transport.ClassRefused, transport.ClassBusy,
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
