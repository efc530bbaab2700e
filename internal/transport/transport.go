package transport

import (
	"context"
	"fmt"
	"hash/maphash"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed75154129/ratelimit/internal/sampler"
)

// A Transport sends commands through a client, inside a budget, whatever kind
// of client it is.
type Transport struct {
	clientKind
	client  Client
	scripts []*Script
	limit   time.Duration // the budget
	nodes   nodes
	seen    atomic.Bool // the client knows its servers, so that asking for a key's takes no time

	batchers atomic.Pointer[[]*batcher] // by shard, of those that were needed so far
	adding   sync.Mutex                 // over adding one
	seed     maphash.Seed               // of turns

	reloads   sampler.Sampler // of the topology
	connector connector
	apart     apart
}

// New returns a Transport that runs these scripts. A nil client is never used.
func New(client Client, sharded bool, budget time.Duration, scripts ...*Script) *Transport {
	t := &Transport{client: client, limit: budget, scripts: scripts, seed: maphash.MakeSeed()}
	if client != nil {
		t.clientKind = kindOf(client, sharded)
	}
	t.batchers.Store(new([]*batcher))
	t.seen.Store(t.knowsNodes)
	t.reloads.Every = reloadEvery
	return t
}

// reloadEvery is the shortest time between two requests to a client to look at its
// cluster again. go-redis looks again when a node redirects it, but not when one is dead
// or hangs: with its own interval, a minute of errors would follow a failover of two
// seconds.
const reloadEvery = 250 * time.Millisecond

// A decisionContext is the context of a decision: it ends with the budget, and
// not with the caller's. A client that hangs up is counted, and is no failure of
// Redis. Whoever waits for a decision is woken by a batcher, so that it has no
// timer of its own.
type decisionContext struct {
	context.Context
	deadline time.Time
}

// Deadline is the end of the budget.
func (c *decisionContext) Deadline() (time.Time, bool) { return c.deadline, true }

// Done and Err do not pass on the caller's cancellation.
func (c *decisionContext) Done() <-chan struct{} { return nil }
func (c *decisionContext) Err() error            { return nil }

// Within starts the clock of a decision.
func (t *Transport) Within(ctx context.Context) context.Context {
	return &decisionContext{ctx, time.Now().Add(t.limit)}
}

// run returns what f does, unless the context ends first. Then f may still be
// running: all that it finds is in what it returns. It is for what is no decision.
func run[T any](ctx context.Context, t *Transport, f func() T) (T, error) {
	if t.direct {
		return f(), nil
	}
	done := make(chan T, 1)
	go func() { done <- f() }()
	select {
	case v := <-done:
		return v, nil
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// setSharded is what to do if a client that should have one server has several.
const setSharded = "the client spreads keys over servers: set Redis.Sharded"

// recovered calls f on a goroutine that is not its caller's. What f panics with
// becomes an error that says where: it must not end the process.
func recovered(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%v\n\nthe Redis client panicked:\n%s", v, debug.Stack())
		}
	}()
	return f()
}
