package failmode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/bridge"
)

// lent has the unexported functions of package algorithms.
var lent = bridge.FromAlgorithms.(bridge.Algorithms[*algorithms.Redis, *algorithms.Memory, algorithms.Limit, algorithms.Check, algorithms.Result, algorithms.Charge])

// A store is what a Guard needs of its limiter beside decisions. A shard is a part
// of it that can fail on its own, such as a node of a Redis Cluster. Shards are
// small numbers from 0 that do not change.
type store interface {
	// shard is the shard that counts a check. A check may move to another shard.
	// It does not wait.
	shard(c *algorithms.Check) int
	// names returns human-readable shard names.
	names(shards ...int) []string
	// probe sends a real, charged check to a shard, in bounded time.
	probe(ctx context.Context, shard int) error
	// dial opens a connection of its own to a shard; errors.ErrUnsupported if it
	// cannot for this kind of store.
	dial(ctx context.Context, shard int) (net.Conn, error)
	// probeRequest is the request of a probe, for a connection of dial.
	probeRequest(shard int) ([]byte, error)
	// budget is how long a decision may take.
	budget() time.Duration
	// within is the context of a decision: it does not end with the caller's,
	// since clients that hang up are counted, and are no failure of the store.
	within(ctx context.Context) (context.Context, context.CancelFunc)
	// join counts one more user of the store in this process. It returns the id
	// to beat with, which is the same for all of them, and how many others there
	// are. leave undoes it, and reports whether it was the last.
	join() (id string, others int)
	leave() (last bool)
	// beat registers an instance for the length of a lease, and returns how many
	// are registered. A lease of 0 removes the instance.
	beat(ctx context.Context, id string, lease time.Duration) (instances int, err error)
	// drop refuses the decisions that wait to be sent to a shard.
	drop(shard int)
	// idle returns channels that are closed as soon as no decision is under way.
	idle() []<-chan struct{}
	// warm dials and prepares what the first decision needs.
	warm(ctx context.Context) error
	// warnings lists options that make an outage worse.
	warnings() []string
	// serverWarnings asks the servers whether they may forget what they count.
	serverWarnings(ctx context.Context) ([]string, error)
}

// storeOf returns the store behind a limiter: the Redis that it is or that it
// wraps, by Unwrap; otherwise a store of a single shard.
func storeOf(l algorithms.Limiter) store {
	for inner := l; inner != nil; {
		if r, ok := inner.(*algorithms.Redis); ok {
			return redisStore{r}
		}
		w, ok := inner.(interface{ Unwrap() algorithms.Limiter })
		if !ok {
			break
		}
		inner = w.Unwrap()
	}
	return plainStore{l}
}

type redisStore struct{ redis *algorithms.Redis }

func (s redisStore) shard(c *algorithms.Check) int { return lent.Shard(s.redis, c) }
func (s redisStore) names(shards ...int) []string  { return lent.Names(s.redis, shards...) }
func (s redisStore) probe(ctx context.Context, shard int) error {
	return lent.Probe(ctx, s.redis, shard)
}
func (s redisStore) budget() time.Duration          { return lent.Budget(s.redis) }
func (s redisStore) warnings() []string             { return lent.Warnings(s.redis) }
func (s redisStore) warm(ctx context.Context) error { return lent.Warm(ctx, s.redis) }
func (s redisStore) join() (string, int)            { return lent.Join(s.redis) }
func (s redisStore) leave() bool                    { return lent.Leave(s.redis) }
func (s redisStore) drop(shard int)                 { lent.Drop(s.redis, shard) }
func (s redisStore) idle() []<-chan struct{}        { return lent.Idle(s.redis) }

// within leaves it to the Redis, which bounds each decision by its budget.
func (redisStore) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return ctx, func() {}
}

func (s redisStore) dial(ctx context.Context, shard int) (net.Conn, error) {
	return lent.Dial(ctx, s.redis, shard)
}

func (s redisStore) probeRequest(shard int) ([]byte, error) { return lent.ProbeRequest(s.redis, shard) }

func (s redisStore) beat(ctx context.Context, id string, lease time.Duration) (int, error) {
	return lent.Beat(ctx, s.redis, id, lease)
}

func (s redisStore) serverWarnings(ctx context.Context) ([]string, error) {
	return lent.ServerWarnings(ctx, s.redis)
}

// A plainStore is a limiter of an unknown kind.
type plainStore struct{ limiter algorithms.Limiter }

const (
	// plainBudget is the assumed budget of limiters other than Redis.
	plainBudget = 50 * time.Millisecond
	// plainPatience is how long they may take where they heed their context.
	plainPatience = time.Second
)

// probeCheck is a check that probes do not exhaust. No rule of the middleware
// can have its name.
var probeCheck = algorithms.Check{
	Rule:  "~probe",
	Limit: algorithms.Limit{Rate: 1_000_000, Period: time.Second, Algorithm: algorithms.FixedWindow},
}

func (plainStore) shard(*algorithms.Check) int { return 0 }
func (plainStore) budget() time.Duration       { return plainBudget }
func (plainStore) warnings() []string          { return nil }
func (plainStore) warm(context.Context) error  { return nil }

func (s plainStore) names(shards ...int) []string {
	names := make([]string, len(shards))
	for i := range names {
		names[i] = fmt.Sprintf("%T", s.limiter)
	}
	return names
}

func (plainStore) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), plainPatience)
}

func (s plainStore) probe(ctx context.Context, _ int) error {
	ctx, cancel := context.WithTimeout(ctx, plainPatience)
	defer cancel()
	d, err := s.limiter.Take(ctx, probeCheck)
	if err == nil && len(d.Results) == 1 {
		err = d.Results[0].Err
	}
	return err
}

func (plainStore) dial(context.Context, int) (net.Conn, error) { return nil, errors.ErrUnsupported }
func (plainStore) probeRequest(int) ([]byte, error)            { return nil, errors.ErrUnsupported }

func (plainStore) join() (string, int)     { return "", 0 }
func (plainStore) leave() bool             { return true }
func (plainStore) drop(int)                {}
func (plainStore) idle() []<-chan struct{} { return nil }

func (plainStore) beat(context.Context, string, time.Duration) (int, error) {
	return 0, errors.ErrUnsupported
}

func (plainStore) serverWarnings(context.Context) ([]string, error) { return nil, nil }
