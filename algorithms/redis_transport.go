package algorithms

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// maxUnderWay bounds the commands under way in a client that is not called
// directly, those included whose callers have left.
const maxUnderWay = 1024

// A transport sends commands through a client, inside a budget, whatever kind
// of client it is.
type transport struct {
	clientKind
	client Client
	limit  time.Duration // the budget
	nodes  nodes
	seen   atomic.Bool // the client knows its servers, so that asking for a key's takes no time

	// slots has one for each command under way, unless the client is called
	// directly. Such a command runs in a goroutine of its own, which its caller
	// leaves behind when the budget is over; it ends with the client's timeouts.
	slots     chan struct{}
	topology  topology
	connector connector
	denied    *denials // where keys are sharded
}

func newTransport(r *Redis) *transport {
	t := &transport{client: r.Client, limit: r.budget(), slots: make(chan struct{}, maxUnderWay)}
	if !isNil(r.Client) {
		t.clientKind = kindOf(r.Client, r.Sharded)
	}
	t.seen.Store(t.knowsNodes)
	if t.sharded {
		t.denied = newDenials()
	}
	t.topology.start = time.Now()
	return t
}

// within starts the clock of a decision. The caller's own cancellation ends
// here: a client that hangs up is counted, and is no failure of Redis.
func (t *transport) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), t.limit)
}

// A response is what a script call returned.
type response struct {
	numbers []int64
	err     error
}

// send runs one script call.
func (t *transport) send(ctx context.Context, c *call) ([]int64, error) {
	out, err := run(ctx, t, func() response {
		out := t.process(ctx, c, false)
		if unknownScript(out.err) && ctx.Err() == nil {
			out = t.process(ctx, c, true)
		}
		out.err = t.unsent(c.key(), out.err)
		return out
	})
	if err == nil {
		err = out.err
	}
	if err != nil {
		return nil, t.failed(ctx, c.key(), err)
	}
	return out.numbers, nil
}

func (t *transport) process(ctx context.Context, c *call, text bool) response {
	cmd := c.command(ctx, text)
	if err := t.client.Process(ctx, noRetry{cmd}); err != nil {
		return response{err: err}
	}
	numbers, err := cmd.Result()
	return response{numbers, err}
}

// sendAll runs the calls in one flush. The responses are in their order; a server
// that hangs does not take those of other servers with it.
func (t *transport) sendAll(ctx context.Context, calls []*call) []response {
	responses := make([]response, len(calls))
	ask := func(group []int) {
		asked := make([]*call, len(group))
		for i, at := range group {
			asked[i] = calls[at]
		}
		got, err := run(ctx, t, func() []response { return t.flush(ctx, asked) })
		for i, at := range group {
			if err == nil {
				responses[at] = got[i]
			} else {
				responses[at].err = err
			}
			if responses[at].err != nil {
				responses[at].err = t.failed(ctx, calls[at].key(), responses[at].err)
			}
		}
	}
	var asking sync.WaitGroup
	groups := t.byNode(calls)
	for _, group := range groups[1:] {
		asking.Go(func() { ask(group) })
	}
	ask(groups[0])
	asking.Wait()
	return responses
}

// again sends another call in place of each that has met a ban by hand.
func (t *transport) again(ctx context.Context, responses []response, instead func(i int) *call) {
	var calls []*call
	var at []int
	for i := range responses {
		if metBan(responses[i].err) {
			calls, at = append(calls, instead(i)), append(at, i)
		}
	}
	if len(calls) == 0 {
		return
	}
	for j, resp := range t.sendAll(ctx, calls) {
		responses[at[j]] = resp
	}
}

// byNode returns the places of the calls that one server gets. They go in a
// pipeline of their own: a ClusterClient whose budget ends while it tries one
// server again also discards what the others have answered.
func (t *transport) byNode(calls []*call) [][]int {
	groups := make([][]int, 0, len(calls))
	at := make(map[*redis.Client]int, len(calls))
	for i, c := range calls {
		node := t.nodeOf(c.key())
		group, ok := at[node]
		if !ok {
			group = len(groups)
			at[node], groups = group, append(groups, nil)
		}
		groups[group] = append(groups[group], i)
	}
	return groups
}

func (t *transport) flush(ctx context.Context, calls []*call) []response {
	cmds := make([]*redis.IntSliceCmd, len(calls))
	all := make([]redis.Cmder, len(calls))
	for i, c := range calls {
		cmds[i] = c.command(ctx, false)
		all[i] = cmds[i]
	}
	_ = t.pipe(ctx, all) // each command has its own error
	var unknown []redis.Cmder
	for i, c := range calls {
		if unknownScript(cmds[i].Err()) && ctx.Err() == nil {
			cmds[i] = c.command(ctx, true)
			unknown = append(unknown, cmds[i])
		}
	}
	if len(unknown) > 0 {
		_ = t.pipe(ctx, unknown)
	}
	responses := make([]response, len(calls))
	for i := range cmds {
		responses[i].numbers, responses[i].err = cmds[i].Result()
	}
	if len(calls) == 1 { // of several, one may have been sent and another not
		responses[0].err = t.unsent(calls[0].key(), responses[0].err)
	}
	return responses
}

// pipe sends all commands in one flush. Its error is one of theirs.
func (t *transport) pipe(ctx context.Context, cmds []redis.Cmder) error {
	pipe := t.pipeline()
	for _, cmd := range cmds {
		_ = pipe.Process(ctx, noRetry{cmd}) // only queues
	}
	_, err := pipe.Exec(ctx)
	return err
}

// del removes keys: in one command, or one for each key where they are sharded.
func (t *transport) del(ctx context.Context, keys []string) error {
	lost, err := run(ctx, t, func() error {
		if !t.sharded {
			args := []any{"del"}
			for _, key := range keys {
				args = append(args, key)
			}
			cmd := redis.NewIntCmd(ctx, args...)
			if err := t.client.Process(ctx, noRetry{cmd}); err != nil {
				return err
			}
			return cmd.Err()
		}
		cmds := make([]redis.Cmder, len(keys))
		for i, key := range keys {
			cmds[i] = redis.NewIntCmd(ctx, "del", key)
		}
		return t.pipe(ctx, cmds)
	})
	if err = errors.Join(err, lost); err != nil {
		return t.failed(ctx, keys[0], err)
	}
	return nil
}

// run returns what f does, unless the budget is over first. Then f may still be
// running: all that it finds is in what it returns.
func run[T any](ctx context.Context, t *transport, f func() T) (T, error) {
	if t.direct {
		return f(), nil
	}
	var none T
	select {
	case t.slots <- struct{}{}:
	default:
		select {
		case t.slots <- struct{}{}:
		case <-ctx.Done():
			return none, fmt.Errorf("%w: %d for the whole budget of %s", errBusy, maxUnderWay, t.limit)
		}
	}
	done := make(chan T, 1)
	go func() {
		defer func() { <-t.slots }()
		done <- f()
	}()
	select {
	case v := <-done:
		return v, nil
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// key is the first of a call's keys.
func (c *call) key() string { return c.args[3].(string) }

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
