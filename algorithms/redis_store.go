package algorithms

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
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

// Shard is the part of the store that counts a check and can fail on its own:
// on a Redis Cluster the number of the master that has its slot, on a Ring that
// of the shard, as far as the client knows; 0 otherwise. It is safe for
// concurrent use and does not wait.
func (s store) Shard(c *Check) int {
	if !s.KnowsServers() {
		return 0
	}
	tag := c.Key
	if len(tag) > maxPart || !plain(tag) {
		var room [maxPart]byte
		tag = string(appendPart(room[:0], tag))
	}
	return s.ShardOf(tag)
}

// probeLimit is a limit that probes do not exhaust.
var probeLimit = Limit{Rate: 1_000_000, Period: time.Second, Algorithm: FixedWindow}

const (
	// probeRule is no name that a rule of the middleware can have.
	probeRule = "~probe"
	// anyNode is how many keys Probe asks for at once while no node is known. Of
	// three masters, it misses a healthy one once in thousands of times.
	anyNode = 16
)

// Probe sends a real, charged check to a shard, inside the budget. Its error
// says that decisions would fail there. Only a charge shows that: a replica, or
// a server without memory left, still answers what it need not write. A server
// that holds no keys any more is [transport.ErrGone]. The keys are those of the rule
// "~probe", which no rule of the middleware can have; they expire after a second.
func (s store) Probe(ctx context.Context, shard int) (err error) {
	checks := []Check{{Rule: probeRule, Limit: probeLimit}}
	switch {
	case !s.KnowsServers() && shard != 0:
		return redisError(fmt.Errorf("probe: no shard %d", shard))
	case s.KnowsServers() && shard == 0:
		for i := range anyNode {
			checks = append(checks, Check{Rule: probeRule, Key: transport.ProbeKey(i), Limit: probeLimit})
		}
	case s.KnowsServers():
		if checks[0].Key, err = s.KeyOn(shard); err != nil {
			return err
		}
	}
	d, err := s.Take(ctx, checks...)
	if err == nil && len(checks) == 1 {
		err = d.Results[0].Err
	}
	return err
}

// ProbeRequest is a probe of a shard as RESP, for a connection of Dial.
func (s store) ProbeRequest(shard int) (request []byte, err error) {
	key := ""
	if s.KnowsServers() {
		if shard == 0 {
			return nil, errors.ErrUnsupported
		}
		if key, err = s.KeyOn(shard); err != nil {
			return nil, err
		}
	}
	return appendRequest(nil, s.probeCall(key).Request()), nil
}

// probeCall is a probe of a key.
func (s store) probeCall(key string) *transport.Call {
	check := Check{Rule: probeRule, Key: key, Limit: probeLimit}
	return s.takeCall(true, []Check{check}, []step.Params{paramsOf(&check, check.Limit.row())})
}

// appendRequest appends a command as RESP, the protocol of Redis.
func appendRequest(b []byte, args []any) []byte {
	b = append(strconv.AppendInt(append(b, '*'), int64(len(args)), 10), "\r\n"...)
	for _, arg := range args {
		text := fmt.Sprint(arg)
		b = append(strconv.AppendInt(append(b, '$'), int64(len(text)), 10), "\r\n"...)
		b = append(append(b, text...), "\r\n"...)
	}
	return b
}

// Budget is how long a decision may take.
func (s store) Budget() time.Duration { return s.budget() }

// Within leaves it to the Redis, which bounds each decision by its budget.
func (store) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	return ctx, func() {}
}

// Dial opens a connection of its own to a shard; [errors.ErrUnsupported] if it
// cannot for this kind of client.
func (s store) Dial(ctx context.Context, shard int) (net.Conn, error) {
	conn, err := s.Transport.Dial(ctx, shard)
	return conn, redisError(err)
}

// Warm opens connections, loads the scripts and makes a decision for a probe's key.
func (s store) Warm(ctx context.Context) error {
	return redisError(s.Transport.Warm(ctx, s.probeCall))
}

// Beat says that the instance id uses the namespace, and returns how many
// instances do: those whose last beat was less than their lease ago. A lease of
// 0 takes the instance out; others are rounded up to the millisecond. The key is
// "namespace:instances".
//
// All instances should use the same lease: a shorter one cuts off what longer
// ones have left.
func (s store) Beat(ctx context.Context, id string, lease time.Duration) (instances int, err error) {
	ms := (max(lease, 0) + time.Millisecond - 1).Milliseconds()
	c := &transport.Call{Script: script.Instances, Keys: []any{s.Namespace + ":instances"}, Args: []any{id, ms}}
	reply, err := s.Send(s.Transport.Within(ctx), c) // one key goes through every client alike
	if err == nil && len(reply) != 1 {
		err = fmt.Errorf("%w: %d numbers, want 1", transport.ErrReply, len(reply))
	}
	if err != nil {
		return 0, redisError(err)
	}
	return int(reply[0]), nil
}

// ServerWarnings asks the servers whether they may forget what they count.
func (s store) ServerWarnings(ctx context.Context) ([]string, error) {
	warnings, err := s.Transport.ServerWarnings(ctx)
	return warnings, redisError(err)
}
