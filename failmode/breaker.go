package failmode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/sampler"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// ErrOpen means that a check was not sent because its server's circuit is open.
var ErrOpen = errors.New("failmode: circuit open")

// A breaker has a circuit for each shard of a store. It has a goroutine for each
// circuit that is open or in doubt; end ends them.
type breaker struct {
	store   store
	work    *background
	logger  *slog.Logger
	misused sampler.Sampler

	calls   calls
	closing func(shard int, all bool) // see tell

	circuits atomic.Pointer[[]*circuit] // by shard, of those that were needed so far

	ctx    context.Context // ends with the breaker
	cancel context.CancelFunc
	probes sync.WaitGroup

	mu    sync.Mutex // over adding circuits, beginning probes, and ended
	ended bool
}

func (b *breaker) begin(s store, work *background, logger *slog.Logger) {
	b.store, b.work, b.logger = s, work, logger
	b.misused.Every = logInterval
	b.circuits.Store(new([]*circuit))
	b.ctx, b.cancel = context.WithCancel(context.Background())
}

// end ends the probes. It takes as long as one of them may. Afterwards no
// circuit is open.
func (b *breaker) end() {
	b.mu.Lock()
	b.ended = true
	b.mu.Unlock()
	b.cancel()
	b.probes.Wait()
	for _, c := range b.all() {
		c.witness.end()
	}
}

// circuit returns a shard's circuit, and makes it if there is none.
func (b *breaker) circuit(shard int) *circuit {
	if all := b.all(); shard < len(all) {
		return all[shard]
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	all := slices.Clone(b.all())
	for len(all) <= shard {
		all = append(all, &circuit{shard: len(all), witness: b.witness(len(all))})
	}
	b.circuits.Store(&all)
	if w := all[shard].witness; !b.ended {
		b.work.begin(func() { w.prepare(b.ctx) })
	}
	return all[shard]
}

func (b *breaker) witness(shard int) *witness {
	return &witness{
		dial:     func(ctx context.Context) (net.Conn, error) { return b.store.Dial(ctx, shard) },
		request:  func() ([]byte, error) { return b.store.ProbeRequest(shard) },
		patience: b.store.Budget() * 4 / 5, // so that a circuit opens within two budgets
	}
}

// all returns the circuits by shard.
func (b *breaker) all() []*circuit { return *b.circuits.Load() }

// allOpen reports whether nothing can be sent.
func (b *breaker) allOpen() bool {
	all := b.all()
	return len(all) > 0 && !slices.ContainsFunc(all, func(c *circuit) bool { return !c.isOpen() })
}

// A failureKind says what an error proves about the store.
type failureKind int

const (
	noFailure  failureKind = iota // nothing: the error concerns the check, or this process
	failedLate                    // no answer in time: the store may be away, or this process slow
	failedHard                    // the store is away, or answered that it cannot count
)

func failureOf(err error) failureKind {
	switch transport.ClassOf(err) {
	case "", transport.ClassMisused, transport.ClassMoved, transport.ClassBusy:
		return noFailure
	}
	if isTimeout(err) {
		return failedLate
	}
	return failedHard
}

func isTimeout(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// report counts the outcome of a request's checks: one call for each circuit.
func (b *breaker) report(ctx context.Context, sent time.Time, circuits []*circuit, results []algorithms.Result) {
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
		if failure == nil && !c.is(circuitWatched) {
			continue // the usual case
		}
		if now.IsZero() {
			now = time.Now()
		}
		b.count(ctx, sent, now, c, failure)
	}
}

// count counts one call through a circuit.
func (b *breaker) count(ctx context.Context, sent, now time.Time, c *circuit, err error) {
	kind := failureOf(err)
	if kind == noFailure {
		switch transport.ClassOf(err) {
		case transport.ClassMisused:
			b.misused.Do(func() {
				b.logger.ErrorContext(ctx, "ratelimit: unexpected Redis error; manual action required", "error", err)
			})
			fallthrough // the server has answered
		case "":
			c.succeeded(sent, now)
		}
		return
	}
	switch c.failed(sent, now, kind, err) {
	case inDoubt:
		b.look(c)
	case isBroken:
		b.trip(c)
	}
}

// look asks a circuit's witness whether its shard answers. It opens the circuit
// if the shard does not, or if the witness cannot connect to it at all.
func (b *breaker) look(c *circuit) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended || !c.witness.looking.CompareAndSwap(false, true) {
		return
	}
	b.probes.Go(func() {
		defer c.witness.looking.Store(false)
		err := b.work.safely(func() error { return c.witness.look(b.ctx) })
		switch {
		case failureOf(err) == noFailure:
			c.cleared()
			return
		case !errors.Is(err, errors.ErrUnsupported):
			_ = c.probeFailed(fmt.Errorf("failmode: witness: %w", err)) // this is why, and not what was late before
		}
		b.trip(c)
	})
}

// trip opens a circuit and has it probed.
func (b *breaker) trip(c *circuit) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended && c.open(time.Now()) {
		b.store.Drop(c.shard)
		b.probes.Go(func() { b.probe(c) })
	}
}
