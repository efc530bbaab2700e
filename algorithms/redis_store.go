package algorithms

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/seed75154129/ratelimit/internal/script"
	"github.com/seed75154129/ratelimit/internal/step"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// A store is a Redis as failmode.Guard needs it, beside its decisions. A shard is a
// part that can fail on its own. Shards are small numbers from 0 that do not change.
//
// The Redis is valid: a Guard validates all that its limiter wraps.
type store struct {
	*Redis
	*transport.Transport
}

// Store is what a failmode.Guard needs of a Redis beside its decisions. It is not for programs,
// and may change.
func (r *Redis) Store() store {
	t, _ := r.ready()
	return store{r, t}
}

// Shard is the part of the store that counts a key and can fail on its own:
// on a Redis Cluster the number of the master that has its slot, on a Ring that
// of the shard, as far as the client knows; 0 otherwise. It is safe for
// concurrent use and does not wait.
func (s store) Shard(key string) int {
	if !s.KnowsServers() {
		return 0
	}
	if len(key) > maxPart || !plain(key) {
		var room [maxPart]byte
		key = string(appendPart(room[:0], key))
	}
	return s.ShardOf(key)
}

const (
	// probeRule is no name that a rule of the middleware can have.
	probeRule = "~probe"
	// probeRate is a rate that probes do not reach.
	probeRate = 1_000_000
	// anyNode is how many keys Probe asks for at once while no node is known. Of
	// three masters, it misses a healthy one once in thousands of times.
	anyNode = 16
)

// probeCalls are what a probe sends for a key: decisions that charge a count of each form,
// a string with a set and a list, and one more that runs together with the first, as decisions
// in a batch do. So they need all that the rules may need.
func (s store) probeCalls(key string) []*transport.Call {
	return []*transport.Call{s.probeCall(key, FixedWindow, InFlight), s.probeCall(key, SlidingLog), s.probeCall(key, FixedWindow, InFlight)}
}

// probeCall is a decision on counts of the rule "~probe", which no rule of the middleware can
// have. They expire after a second.
func (s store) probeCall(key string, by ...Algorithm) *transport.Call {
	checks, ps := make([]Check, len(by)), make([]step.Params, len(by))
	for i, a := range by {
		l := Limit{Rate: probeRate, Period: time.Second, Algorithm: a} // too much for a log that is not of probes
		checks[i] = Check{Rule: probeRule, Key: key, Limit: l}
		ps[i] = l.step().Params(1, 0, l.row())
		ps[i].ID = anyID()
	}
	return s.takeCall(true, checks, ps)
}

// Probe sends a real, charged decision to a shard, inside the budget. Its error
// says that decisions would fail there. Only a charge shows that: a replica, or
// a server without memory left, still answers what it need not write. A server
// that holds no keys any more is [transport.ErrGone].
func (s store) Probe(ctx context.Context, shard int) error {
	key, err := s.probeKey(shard)
	if err != nil {
		return redisError(err)
	}
	calls := s.probeCalls(key)
	anywhere := s.KnowsServers() && shard == 0
	if anywhere {
		for i := range anyNode {
			calls = append(calls, s.probeCall(transport.ProbeKey(i), FixedWindow, InFlight))
		}
	}
	for _, r := range s.SendAll(s.Transport.Within(ctx), calls) {
		if anywhere && r.Err == nil {
			s.Seen()
			return nil
		}
		err = cmp.Or(err, r.Err)
	}
	return redisError(err)
}

// Ask makes the calls of a probe on a connection of its own; see [transport.Transport.Ask].
func (s store) Ask(ctx context.Context, shard int, anew bool) error {
	key, err := s.probeKey(shard)
	if err == nil {
		err = s.Transport.Ask(ctx, shard, anew, s.probeCalls(key))
	}
	return redisError(err)
}

// probeKey is a key of a shard.
func (s store) probeKey(shard int) (string, error) {
	switch {
	case shard == 0:
		return "", nil
	case s.KnowsServers():
		return s.KeyOn(shard)
	}
	return "", fmt.Errorf("probe: no shard %d", shard)
}

// Budget is how long a decision may take.
func (s store) Budget() time.Duration { return s.budget() }

// Within leaves it to the Redis, which bounds each decision by its budget.
func (store) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	return ctx, func() {}
}

// Warm opens connections, loads the scripts and makes a decision for a probe's key.
func (s store) Warm(ctx context.Context) error {
	return redisError(s.Transport.Warm(ctx, s.probeCalls))
}

// Beat says that the instance id uses the namespace, and returns how many
// instances do: those whose last beat was less than their lease ago. A lease of
// 0 takes the instance out, for good. The key is "namespace:instances".
//
// All instances should use the same lease: a shorter one cuts off what longer
// ones have left.
func (s store) Beat(ctx context.Context, id string, lease time.Duration) (instances int, err error) {
	key := s.Namespace + ":instances"
	told := " 1 1 0"
	if lease == 0 { // and a beat that comes later changes nothing
		told, lease = " 1 1 1", time.Minute
	}
	c := &transport.Call{Script: script.Pulse, Keys: []any{key}, Args: []any{lease.Microseconds(), id + told}}
	reply, err := s.Send(s.Transport.Within(ctx), c) // one key goes through every client alike
	switch {
	case err != nil:
		return 0, redisError(err)
	case len(reply) != 1:
		return 0, redisError(fmt.Errorf("%w: %d numbers, want 1", transport.ErrReply, len(reply)))
	case reply[0] < 0:
		return 0, redisError(fmt.Errorf("%w at key %s", transport.ErrForeign, key))
	}
	return int(reply[0]), nil
}

// ServerWarnings asks the servers whether they may forget what they count.
func (s store) ServerWarnings(ctx context.Context) ([]string, error) {
	warnings, err := s.Transport.ServerWarnings(ctx)
	return warnings, redisError(err)
}
