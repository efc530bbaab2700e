package failmode

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/monitor"
)

// A store is what a Guard needs of its limiter beside decisions.
type store interface {
	monitor.Store
	// Shard is the shard that counts a key. A key may move to another shard.
	// It does not wait.
	Shard(key string) int
	// Within is the context of a decision: it does not end with the caller's,
	// since clients that hang up are counted, and are no failure of the store.
	Within(ctx context.Context) (context.Context, context.CancelFunc)
	// Beat registers an instance for the length of a lease, and returns how many
	// are registered. A lease of 0 removes the instance.
	Beat(ctx context.Context, id string, lease time.Duration) (instances int, err error)
	// Idle returns channels that are closed as soon as no decision is under way.
	Idle() []<-chan struct{}
	// Warm dials and prepares what the first decision needs.
	Warm(ctx context.Context) error
}

// storeOf returns the store behind a limiter: the Redis that it is or that it
// wraps, by Unwrap; otherwise a store of a single shard.
func storeOf(l algorithms.Limiter) store {
	for inner := range Layers(l) {
		switch inner := inner.(type) {
		case *Guard: // it decides without its Redis, too
			return plainStore{l}
		case *algorithms.Redis:
			return inner.Store()
		}
	}
	return plainStore{l}
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

func (plainStore) Shard(string) int           { return 0 }
func (plainStore) Budget() time.Duration      { return plainBudget }
func (plainStore) Warnings() []string         { return nil }
func (plainStore) Warm(context.Context) error { return nil }

func (s plainStore) Names(shards ...int) []string {
	names := make([]string, len(shards))
	for i := range names {
		names[i] = fmt.Sprintf("%T", s.limiter)
	}
	return names
}

func (plainStore) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), plainPatience)
}

func (s plainStore) Probe(ctx context.Context, _ int) error {
	ctx, cancel := context.WithTimeout(ctx, plainPatience)
	defer cancel()
	d, err := s.limiter.Take(ctx, probeCheck)
	results, _ := resultsOf(d, err, []algorithms.Check{probeCheck})
	return results[0].Err
}

func (plainStore) Ask(context.Context, int, bool) error { return errors.ErrUnsupported }
func (plainStore) HangUp()                              {}
func (plainStore) Redial(context.Context, int)          {}
func (plainStore) Drop(int)                             {}
func (plainStore) Idle() []<-chan struct{}              { return nil }

func (plainStore) Beat(context.Context, string, time.Duration) (int, error) {
	return 0, errors.ErrUnsupported
}

func (plainStore) ServerWarnings(context.Context) ([]string, error) { return nil, nil }

// undecided returns a result for each check, with this error or, if it is nil, without
// one.
func undecided(checks []algorithms.Check, err error) []algorithms.Result {
	results := make([]algorithms.Result, len(checks))
	for i, c := range checks {
		results[i] = algorithms.Result{Check: c, Err: err}
	}
	return results
}

// resultsOf returns one result for each check, and the limiter's error. An answer without
// one result for each check is an error, too. After an error, all results have it.
func resultsOf(d algorithms.Decision, err error, checks []algorithms.Check) ([]algorithms.Result, error) {
	if err == nil && len(d.Results) != len(checks) {
		err = fmt.Errorf("failmode: the limiter answered %d checks with %d results; it must return one for each, in their order", len(checks), len(d.Results))
	}
	if err != nil {
		return undecided(checks, err), err
	}
	return d.Results, nil
}

// ofStore reports whether the store decided a result.
func ofStore(r *algorithms.Result) bool {
	switch r.Source {
	case algorithms.SourceNone, algorithms.SourceDenyCache, algorithms.SourceSync, algorithms.SourceFallback, algorithms.SourceFailOpen, algorithms.SourceFailClosed:
		return false
	}
	return r.Err == nil
}
