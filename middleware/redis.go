package middleware

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
)

// Redis is the recommended limiter for many processes: it counts in Redis as
// [algorithms.Redis] does. A [failmode.Breaker] keeps requests away from a Redis
// that cannot decide, and meanwhile each rule follows its fail mode as
// [failmode.Fallback] says. It is an [algorithms.Counter].
//
// When it is first validated or used, it logs which of the client's options make
// an outage worse than it has to be; [algorithms.FailFast] sets them right.
//
// The fields must not change after first use. Redis is safe for concurrent use.
// Close ends the goroutines that it has while part of Redis is down.
type Redis struct {
	// Client sends the commands: any go-redis client; required. It stays the
	// caller's to close.
	Client algorithms.Client

	// Namespace leads every key, so that services that share a Redis do not
	// share counts; required. See [algorithms.Redis].
	Namespace string

	// Sharded says that the client spreads keys over servers; needed only for a
	// wrapped ClusterClient or Ring.
	Sharded bool

	// Instances is how many processes share the limits: while Redis is away,
	// each counts at its share. 0 means as many as a heartbeat in Redis last
	// counted, 1 before the first.
	Instances int

	// Budget bounds a decision; 0 means 50 ms.
	Budget time.Duration

	// Logger hears of outages and of what could make them worse; nil means
	// slog.Default().
	Logger *slog.Logger

	once    sync.Once
	guard   *failmode.Fallback
	breaker *failmode.Breaker
	store   *algorithms.Redis
	logger  *slog.Logger
	start   time.Time
	look    atomic.Int64 // when to look at the server next, since start

	mu      sync.Mutex // over looking and closing
	closed  bool
	looking sync.WaitGroup
}

var _ algorithms.Counter = (*Redis)(nil)

func (r *Redis) ready() *failmode.Fallback {
	r.once.Do(func() {
		r.start = time.Now()
		r.store = &algorithms.Redis{Client: r.Client, Namespace: r.Namespace, Sharded: r.Sharded, Budget: r.Budget}
		r.breaker = &failmode.Breaker{Next: r.store, Fast: max(r.Budget, 0) / 2, Logger: r.Logger}
		r.guard = &failmode.Fallback{Next: r.breaker, Instances: r.Instances, Logger: r.Logger}
		r.logger = cmp.Or(r.Logger, slog.Default())
		if r.store.Validate() != nil {
			return // New says what is wrong
		}
		if warned := r.store.Warnings(); len(warned) > 0 {
			r.logger.Warn("ratelimit: options of the Redis client make outages worse; make them with algorithms.FailFast", "options", strings.Join(warned, "; "))
		}
	})
	return r.guard
}

// lookAtServer warns of servers that forget, in the background: it is no reason
// to keep a request waiting. It asks again, a minute later, until it is told.
func (r *Redis) lookAtServer(ctx context.Context) {
	next := r.look.Load()
	if next == math.MaxInt64 { // told; the usual case
		return
	}
	now := int64(time.Since(r.start))
	if now < next || !r.look.CompareAndSwap(next, now+int64(time.Minute)) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.looking.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		warned, err := r.store.ServerWarnings(ctx)
		switch algorithms.ClassOf(err) {
		case "", algorithms.ClassRefused: // INFO may be forbidden, which is no fault
			r.look.Store(math.MaxInt64)
		}
		if len(warned) > 0 {
			r.logger.Warn("ratelimit: Redis forgets whom it limits", "servers", strings.Join(warned, "; "))
		}
	})
}

// Validate reports everything that is wrong with the fields, or nil.
func (r *Redis) Validate() error {
	return r.ready().Validate()
}

// Take implements [algorithms.Limiter]. Its only errors are about the checks.
func (r *Redis) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	guard := r.ready()
	r.lookAtServer(ctx)
	return guard.Take(ctx, checks...)
}

// Peek implements [algorithms.Counter].
func (r *Redis) Peek(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	return r.ready().Peek(ctx, checks...)
}

// Settle implements [algorithms.Counter].
func (r *Redis) Settle(ctx context.Context, cost int64, charged ...algorithms.Result) error {
	return r.ready().Settle(ctx, cost, charged...)
}

// Reset implements [algorithms.Counter].
func (r *Redis) Reset(ctx context.Context, checks ...algorithms.Check) error {
	return r.ready().Reset(ctx, checks...)
}

// Unwrap returns the limiter that guards the store.
func (r *Redis) Unwrap() algorithms.Limiter { return r.ready() }

// Down names what of Redis decisions are kept away from: the addresses of
// servers; empty when all is well. Readiness must not depend on it: the service
// is up, and its limits follow their modes.
func (r *Redis) Down() []string {
	r.ready()
	return r.breaker.Down()
}

// Close ends what the limiter started. The client stays open.
func (r *Redis) Close() error {
	guard := r.ready()
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.looking.Wait()
	return guard.Close()
}
