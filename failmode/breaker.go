package failmode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// ErrOpen says that a check was not sent, because the circuit of the shard that
// counts it is open.
var ErrOpen = errors.New("failmode: the circuit is open")

// Breaker keeps decisions away from the shards of a store that cannot make them,
// so that they fail at once instead of waiting, and a store in trouble is left
// alone. Each shard has a circuit.
//
// A circuit opens when Failures decisions in a row failed, or more than half of
// at least 20 within a second. While it is open, nothing but a probe is sent:
// one about every ProbeEvery, in the background, of the script that decides. A
// probe that takes no longer than Fast closes the circuit at once; slower ones must
// succeed five times in a row, so that a latency around the budget does not open
// and close it all the time. A circuit that opens again within ten seconds
// wants twice as many as the last time, up to eight times as many as at first.
//
// What is no failure of the store does not count: see [algorithms.ErrorClass].
// Refused credentials do, because every decision would dial for them anew.
//
// The fields must not change after first use. Breaker is safe for concurrent
// use. It has one goroutine for each open circuit; Close ends them.
type Breaker struct {
	// Next decides; required.
	Next Store

	// Failures is how many in a row open a circuit; 0 means 5.
	Failures int

	// ProbeEvery is the time between two probes, on average; 0 means 200 ms.
	// Each wait differs from it by up to a fifth.
	ProbeEvery time.Duration

	// Fast is how long a probe may take to close a circuit at once; 0 means
	// half of [algorithms.DefaultBudget].
	Fast time.Duration

	// Logger hears of circuits that open and close; nil means slog.Default().
	Logger *slog.Logger

	once     sync.Once
	circuits atomic.Pointer[[]*circuit] // by shard, of those that were met
	logger   *slog.Logger
	open     atomic.Int64 // how many circuits are
	misused  sampler

	observers atomic.Pointer[[]func(time.Duration, algorithms.Decision, error)]

	mu     sync.Mutex // over starting probes, ending them and logging
	ctx    context.Context
	cancel context.CancelFunc
	probes sync.WaitGroup
	closed bool
}

func (b *Breaker) ready() {
	b.once.Do(func() {
		b.circuits.Store(new([]*circuit))
		b.logger = cmp.Or(b.Logger, slog.Default())
		b.ctx, b.cancel = context.WithCancel(context.Background())
	})
}

// Validate reports everything that is wrong with the fields, and with Next if it
// can tell, or nil.
func (b *Breaker) Validate() error {
	var errs []error
	if isNil(b.Next) {
		errs = append(errs, errors.New("next: required, got nil"))
	} else if next, ok := b.Next.(interface{ Validate() error }); ok {
		errs = append(errs, next.Validate())
	}
	if b.Failures < 0 {
		errs = append(errs, fmt.Errorf("failures: must not be negative, got %d", b.Failures))
	}
	if b.ProbeEvery < 0 {
		errs = append(errs, fmt.Errorf("probe every: must not be negative, got %s", b.ProbeEvery))
	}
	if b.Fast < 0 {
		errs = append(errs, fmt.Errorf("fast: must not be negative, got %s", b.Fast))
	}
	return errors.Join(errs...)
}

// Unwrap returns Next.
func (b *Breaker) Unwrap() algorithms.Limiter { return b.Next }

// Close ends the probes, which takes as long as one of them may, and closes Next
// if it can be closed. From then on no circuit is open.
func (b *Breaker) Close() error {
	b.ready()
	b.mu.Lock()
	b.closed = true
	b.cancel()
	b.mu.Unlock()
	b.probes.Wait()
	if c, ok := b.Next.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// Take implements [algorithms.Limiter]. Checks of shards whose circuit is open
// fail with [ErrOpen].
func (b *Breaker) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	b.ready()
	return b.decide(ctx, b.Next.Take, checks)
}

// Peek implements [algorithms.Counter], as Take does.
func (b *Breaker) Peek(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	b.ready()
	return b.decide(ctx, b.Next.Peek, checks)
}

type ask func(context.Context, ...algorithms.Check) (algorithms.Decision, error)

func (b *Breaker) decide(ctx context.Context, next ask, checks []algorithms.Check) (algorithms.Decision, error) {
	// Where checks are counted is asked once: it may change under way.
	var room [4]*circuit
	circuits, refused := room[:0], 0
	for i := range checks {
		c := b.circuit(b.Next.Shard(checks[i]))
		if circuits = append(circuits, c); c.isOpen.Load() {
			refused++
		}
	}
	switch {
	case refused > 0 && refused == len(checks):
		return algorithms.Decision{}, ErrOpen
	case refused > 0:
		return b.decideSome(ctx, next, checks, circuits)
	}
	return b.send(ctx, next, checks, circuits)
}

func (b *Breaker) send(ctx context.Context, next ask, checks []algorithms.Check, circuits []*circuit) (algorithms.Decision, error) {
	begun := time.Now()
	d, err := next(ctx, checks...)
	b.report(begun, circuits, d, err)
	b.tell(begun, d, err)
	return d, err
}

func (b *Breaker) tell(begun time.Time, d algorithms.Decision, err error) {
	if observers := b.observers.Load(); observers != nil {
		took := time.Since(begun)
		for _, observe := range *observers {
			observe(took, d, err)
		}
	}
}

// decideSome sends what is not refused.
func (b *Breaker) decideSome(ctx context.Context, next ask, checks []algorithms.Check, circuits []*circuit) (algorithms.Decision, error) {
	results := make([]algorithms.Result, len(checks))
	var sent []algorithms.Check
	var through []*circuit
	var at []int
	for i, c := range checks {
		if circuits[i].isOpen.Load() {
			results[i] = algorithms.Result{Check: c, Source: algorithms.SourceRedis, Err: ErrOpen}
		} else {
			sent, through, at = append(sent, c), append(through, circuits[i]), append(at, i)
		}
	}
	d, err := b.send(ctx, next, sent, through)
	if err != nil {
		return algorithms.Decision{}, err
	}
	for i := range d.Results {
		results[at[i]] = d.Results[i]
	}
	return algorithms.Decision{Results: results}, nil
}

// Refuses reports whether a check would not be sent now.
func (b *Breaker) Refuses(c algorithms.Check) bool {
	b.ready()
	return b.open.Load() > 0 && b.circuit(b.Next.Shard(c)).isOpen.Load()
}

// circuit returns that of a shard.
func (b *Breaker) circuit(shard int) *circuit {
	if all := *b.circuits.Load(); shard < len(all) {
		return all[shard]
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	all := slices.Clone(*b.circuits.Load())
	for len(all) <= shard {
		all = append(all, &circuit{shard: len(all)})
	}
	b.circuits.Store(&all)
	return all[shard]
}

// Observe has f see every call to Next, after it: how long it took and what it
// returned; of probes only those that failed. f runs on the caller's goroutine.
func (b *Breaker) Observe(f func(took time.Duration, d algorithms.Decision, err error)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var observers []func(time.Duration, algorithms.Decision, error)
	if old := b.observers.Load(); old != nil {
		observers = slices.Clone(*old)
	}
	observers = append(observers, f)
	b.observers.Store(&observers)
}

// Settle implements [algorithms.Counter]. What is charged where the circuit is
// open stays as it is, and the error is [ErrOpen].
func (b *Breaker) Settle(ctx context.Context, cost int64, charged ...algorithms.Result) error {
	b.ready()
	refused := func(r algorithms.Result) bool { return r.Charged > 0 && b.Refuses(r.Check) }
	if !slices.ContainsFunc(charged, refused) {
		return b.Next.Settle(ctx, cost, charged...)
	}
	rest := slices.DeleteFunc(slices.Clone(charged), refused)
	return errors.Join(ErrOpen, b.Next.Settle(ctx, cost, rest...))
}

// Reset implements [algorithms.Counter]. Checks of shards whose circuit is open
// are not reset, and the error is [ErrOpen].
func (b *Breaker) Reset(ctx context.Context, checks ...algorithms.Check) error {
	b.ready()
	if !slices.ContainsFunc(checks, b.Refuses) {
		return b.Next.Reset(ctx, checks...)
	}
	rest := slices.DeleteFunc(slices.Clone(checks), b.Refuses)
	return errors.Join(ErrOpen, b.Next.Reset(ctx, rest...))
}

// Beat counts the processes that share the limits, if Next can: see
// [algorithms.Redis.Beat]. While all circuits are open it returns [ErrOpen].
func (b *Breaker) Beat(ctx context.Context, id string, lease time.Duration) (instances int, err error) {
	next, ok := b.Next.(beater)
	switch {
	case !ok:
		return 0, errors.ErrUnsupported
	case b.open.Load() > 0 && int(b.open.Load()) >= len(*b.circuits.Load()):
		return 0, ErrOpen
	}
	return next.Beat(ctx, id, lease)
}

func isNil(v any) bool {
	r := reflect.ValueOf(v)
	return v == nil || r.Kind() == reflect.Pointer && r.IsNil()
}
