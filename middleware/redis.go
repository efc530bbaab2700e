package middleware

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
)

// Redis is the recommended limiter for many processes: it counts in Redis as
// [algorithms.Redis] does, and while Redis is away each rule follows its fail
// mode as [failmode.Fallback] does. It is an [algorithms.Counter].
//
// The fields must not change after first use. Redis is safe for concurrent use.
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
	// each counts at its share. 0 means 1.
	Instances int

	// Budget bounds a decision; 0 means 50 ms.
	Budget time.Duration

	// Logger hears of outages; nil means slog.Default().
	Logger *slog.Logger

	once  sync.Once
	guard *failmode.Fallback
}

var _ algorithms.Counter = (*Redis)(nil)

func (r *Redis) ready() *failmode.Fallback {
	r.once.Do(func() {
		store := &algorithms.Redis{Client: r.Client, Namespace: r.Namespace, Sharded: r.Sharded, Budget: r.Budget}
		r.guard = &failmode.Fallback{Next: store, Instances: r.Instances, Logger: r.Logger}
	})
	return r.guard
}

// Validate reports everything that is wrong with the fields, or nil.
func (r *Redis) Validate() error {
	return r.ready().Validate()
}

// Take implements [algorithms.Limiter]. Its only errors are about the checks.
func (r *Redis) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	return r.ready().Take(ctx, checks...)
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

// Close ends what the limiter started. The client stays open.
func (r *Redis) Close() error { return r.ready().Close() }
