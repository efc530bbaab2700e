package algorithms

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// errBudget says that Redis did not answer in time. Whether it executed the
// decision is unknown.
var errBudget = fmt.Errorf("no answer within the budget: %w", context.DeadlineExceeded)

// errBusy says that a decision was not sent: a client without
// ContextTimeoutEnabled had too many commands under way, for the whole budget.
var errBusy = errors.New("too many commands under way in the client")

// maxUnderWay bounds the commands under way in a client that does not heed
// deadlines, those included whose callers have left.
const maxUnderWay = 1024

// A sender talks to Redis inside a budget, whatever the client's options are.
type sender struct {
	client  Client
	limit   time.Duration
	sharded bool
	// slots is nil for a client that heeds deadlines. Otherwise each command
	// runs in a goroutine of its own that takes one, and that the caller leaves
	// behind when its budget is over; it ends with the client's own timeouts.
	slots    chan struct{}
	topology *topology
}

func newSender(c Client, budget time.Duration, sharded bool) sender {
	s := sender{client: c, limit: budget, sharded: sharded, topology: newTopology(c)}
	if !optionsOf(c).ContextTimeoutEnabled {
		s.slots = make(chan struct{}, maxUnderWay)
	}
	return s
}

// optionsOf returns of a client's options those that say how it fails; all zero
// for a client that is not go-redis' own.
func optionsOf(c Client) redis.Options {
	switch c := c.(type) {
	case *redis.Client:
		return *c.Options()
	case *redis.ClusterClient:
		o := c.Options()
		return redis.Options{
			ContextTimeoutEnabled: o.ContextTimeoutEnabled, MaxRetries: o.MaxRetries, DialerRetries: o.DialerRetries,
			DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, PoolTimeout: o.PoolTimeout,
		}
	case *redis.Ring:
		o := c.Options()
		return redis.Options{
			ContextTimeoutEnabled: o.ContextTimeoutEnabled, MaxRetries: o.MaxRetries, DialerRetries: o.DialerRetries,
			DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, PoolTimeout: o.PoolTimeout,
		}
	}
	return redis.Options{}
}

// budget starts the clock of a decision. The caller's own cancellation ends
// here: a client that hangs up is counted, and is no failure of Redis.
func (s *sender) budget(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), s.limit)
}

// within runs f, which must not touch anything of the caller's that is used
// after an error: it may still be running then.
func (s *sender) within(ctx context.Context, f func() error) error {
	if s.slots == nil {
		err := f()
		if err != nil && ctx.Err() != nil {
			err = fmt.Errorf("%w of %s: %w", errBudget, s.limit, err)
		}
		return err
	}
	select {
	case s.slots <- struct{}{}:
	default:
		select {
		case s.slots <- struct{}{}:
		case <-ctx.Done():
			return fmt.Errorf("%w for %s", errBusy, s.limit)
		}
	}
	done := make(chan error, 1)
	go func() {
		defer func() { <-s.slots }()
		done <- f()
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w of %s", errBudget, s.limit)
	}
}

// send runs one script call.
func (s *sender) send(ctx context.Context, c *call) ([]int64, error) {
	var reply []int64
	err := s.within(ctx, func() error {
		cmd := c.command(ctx, false)
		err := s.client.Process(ctx, noRetry{cmd})
		if unknownScript(err) {
			cmd = c.command(ctx, true)
			err = s.client.Process(ctx, noRetry{cmd})
		}
		reply = cmd.Val()
		return err
	})
	if err != nil {
		return nil, err
	}
	return reply, nil
}

// sendAll runs the calls in one flush. Replies and errors are in their order.
func (s *sender) sendAll(ctx context.Context, calls []*call) ([][]int64, []error) {
	var replies [][]int64
	var errs []error
	err := s.within(ctx, func() error {
		replies, errs = s.flush(ctx, calls)
		return nil
	})
	if err == nil {
		for _, err := range errs {
			s.topology.failed(ctx, err)
		}
		return replies, errs
	}
	s.topology.failed(ctx, err)
	failed := make([]error, len(calls)) // errs may still be written
	for i := range failed {
		failed[i] = err
	}
	return make([][]int64, len(calls)), failed
}

func (s *sender) flush(ctx context.Context, calls []*call) ([][]int64, []error) {
	cmds := make([]*redis.IntSliceCmd, len(calls))
	all := make([]redis.Cmder, len(calls))
	for i, c := range calls {
		cmds[i] = c.command(ctx, false)
		all[i] = cmds[i]
	}
	_ = s.pipeline(ctx, all) // each command has its own error
	var unknown []redis.Cmder
	for i, c := range calls {
		if unknownScript(cmds[i].Err()) {
			cmds[i] = c.command(ctx, true)
			unknown = append(unknown, cmds[i])
		}
	}
	if len(unknown) > 0 {
		_ = s.pipeline(ctx, unknown)
	}
	replies, errs := make([][]int64, len(calls)), make([]error, len(calls))
	for i := range cmds {
		replies[i], errs[i] = cmds[i].Result()
	}
	return replies, errs
}

// pipeline sends all commands in one flush. Its error is one of theirs.
func (s *sender) pipeline(ctx context.Context, cmds []redis.Cmder) error {
	pipe := s.client.(pipeliner).Pipeline() // Validate looked
	for _, cmd := range cmds {
		_ = pipe.Process(ctx, noRetry{cmd}) // only queues
	}
	_, err := pipe.Exec(ctx)
	return err
}

// del removes keys: in one command, or one for each key where they are sharded.
func (s *sender) del(ctx context.Context, keys []string) error {
	return s.within(ctx, func() error {
		if !s.sharded {
			args := []any{"del"}
			for _, key := range keys {
				args = append(args, key)
			}
			return s.client.Process(ctx, noRetry{redis.NewIntCmd(ctx, args...)})
		}
		cmds := make([]redis.Cmder, len(keys))
		for i, key := range keys {
			cmds[i] = redis.NewIntCmd(ctx, "del", key)
		}
		return s.pipeline(ctx, cmds)
	})
}

// unknownScript reports that Redis did not run a script because it has
// forgotten its text: after a restart, a failover or SCRIPT FLUSH.
func unknownScript(err error) bool { return redis.HasErrorPrefix(err, "NOSCRIPT") }

// A command wrapped in noRetry is never sent twice by go-redis: one whose reply was
// lost may have been executed, and what came after it would be charged or
// forgotten again.
type noRetry struct{ redis.Cmder }

// NoRetry overrides the client's MaxRetries.
func (noRetry) NoRetry() bool { return true }

// Clone keeps NoRetry in copies.
func (n noRetry) Clone() redis.Cmder { return noRetry{n.Cmder.Clone()} }
