// Package breaker is the circuit breaker of a Guard: it stops decisions from being
// sent to servers that do not answer, probes those, and notices when they recover.
//
// Each server has a [Circuit]. Errors that only the server can be to blame for open
// it. Timeouts only call its witness, because a busy process reads good answers too
// late: the witness asks the server on a connection of its own.
package breaker

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

// A Store is what a Breaker needs of the store that it protects. A shard is a part
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

// A Breaker has a circuit for each shard of a store. It runs a goroutine for each
// circuit that is open or suspected; End ends them.
type Breaker struct {
	// Closing, if there is one, is called when a shard is back: before its circuit closes
	// with all, and afterwards without. It is set before Start.
	Closing func(shard int, all bool)

	store   Store
	work    *background.Group
	logger  *slog.Logger
	misused sampler.Sampler

	calls calls

	circuits atomic.Pointer[[]*Circuit] // by shard, of those that were needed so far

	ctx    context.Context // ends with the breaker
	cancel context.CancelFunc
	probes sync.WaitGroup

	mu    sync.Mutex // over adding circuits, beginning probes, and ended
	ended bool
}

// Start sets what a Breaker needs before its first circuit.
func (b *Breaker) Start(s Store, work *background.Group, logger *slog.Logger) {
	b.store, b.work, b.logger = s, work, logger
	b.misused.Every = sampler.LogInterval
	b.calls.took = histogram.New(histogram.Latencies)
	b.ctx, b.cancel = context.WithCancel(context.Background())
}

// Context ends with the Breaker.
func (b *Breaker) Context() context.Context { return b.ctx }

// End ends the probes. It takes as long as one of them may. Afterwards no
// circuit is open.
func (b *Breaker) End() {
	b.mu.Lock()
	b.ended = true
	b.mu.Unlock()
	b.cancel()
	b.probes.Wait()
	for _, c := range b.all() {
		c.witness.end()
	}
}

// Circuit returns a shard's circuit, and makes it if there is none.
func (b *Breaker) Circuit(shard int) *Circuit {
	if all := b.all(); shard < len(all) {
		return all[shard]
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	all := slices.Clone(b.all())
	for len(all) <= shard {
		all = append(all, &Circuit{shard: len(all), witness: b.witness(len(all))})
	}
	b.circuits.Store(&all)
	if w := all[shard].witness; !b.ended {
		b.work.Begin(func() { w.prepare(b.ctx) })
	}
	return all[shard]
}

func (b *Breaker) witness(shard int) *witness {
	return &witness{
		dial:    func(ctx context.Context) (net.Conn, error) { return b.store.Dial(ctx, shard) },
		request: func() ([]byte, error) { return b.store.ProbeRequest(shard) },
		timeout: b.store.Budget() * 4 / 5, // so that a circuit opens within two budgets
	}
}

// Prepare opens the connection of the first shard's witness.
func (b *Breaker) Prepare(ctx context.Context) { b.Circuit(0).witness.prepare(ctx) }

// all returns the circuits by shard.
func (b *Breaker) all() []*Circuit {
	if all := b.circuits.Load(); all != nil {
		return *all
	}
	return nil
}

// AllOpen reports whether nothing can be sent.
func (b *Breaker) AllOpen() bool {
	all := b.all()
	return len(all) > 0 && !slices.ContainsFunc(all, func(c *Circuit) bool { return !c.IsOpen() })
}

// States returns the states of the circuits that were needed so far, by shard.
func (b *Breaker) States() []State {
	all := b.all()
	states := make([]State, len(all))
	for i, c := range all {
		states[i] = c.now()
	}
	return states
}

// Metrics returns what the Breaker has counted; zeros before Start.
func (b *Breaker) Metrics() []algorithms.Metric {
	states := b.States()
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
		cmp.Or(b.calls.took, histogram.New(histogram.Latencies)).Metric("ratelimit_store_duration_seconds"),
	}
	for i, class := range errorClasses {
		metrics = append(metrics, algorithms.Metric{
			Name: "ratelimit_store_errors_total", Labels: []string{"class", string(class)}, Value: float64(b.calls.failed[i].Load()),
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
