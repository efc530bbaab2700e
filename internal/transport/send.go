package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

// Send runs one call on the only server.
func (t *Transport) Send(ctx context.Context, c *Call) ([]int64, error) {
	p := &pending{only: [1]*Call{c}}
	p.begin(ctx, p.only[:])
	t.batcher(0).do(p, t.direct)
	r := t.answer(p, c)
	t.connect(c.Key(), r.Err)
	return r.Numbers, r.Err
}

// SendAll runs the calls, those for one server in one flush. The responses are in
// their order; a server that hangs does not take those of other servers with it.
func (t *Transport) SendAll(ctx context.Context, calls []*Call) []Response {
	groups := t.byNode(calls)
	for _, g := range groups {
		g.begin(ctx, g.calls)
	}
	for _, g := range groups[1:] {
		t.batcher(g.shard).enter(&g.pending, false)
	}
	t.batcher(groups[0].shard).do(&groups[0].pending, t.direct)
	for _, g := range groups[1:] {
		g.wait()
	}
	responses := make([]Response, len(calls))
	for _, g := range groups {
		var err error
		for i, at := range g.at {
			responses[at] = t.answer(&g.pending, g.calls[i])
			err = cmp.Or(err, responses[at].Err)
		}
		t.connect(g.calls[0].Key(), err) // one server: they need one connection
	}
	return responses
}

// A group is the calls that one server gets, and their places among all calls.
type group struct {
	pending
	shard int
	at    []int
}

// byNode groups calls by server. They go in a pipeline of their own: a
// ClusterClient whose budget ends while it tries one server again also discards
// what the others have answered.
func (t *Transport) byNode(calls []*Call) []*group {
	var groups []*group
	for at, c := range calls {
		shard := t.ShardOf(c.Key())
		i := slices.IndexFunc(groups, func(g *group) bool { return g.shard == shard })
		if i < 0 {
			i = len(groups)
			groups = append(groups, &group{shard: shard})
		}
		groups[i].calls, groups[i].at = append(groups[i].calls, c), append(groups[i].at, at)
	}
	return groups
}

// answer is what became of one call of a decision whose wait is over.
func (t *Transport) answer(p *pending, c *Call) Response {
	r := Response{Err: p.err}
	if p.err == nil {
		r = c.answer()
	}
	if r.Err == nil {
		return r
	}
	// Of several that a sharded client sends, one may have been sent and another not.
	if p.err == nil && (!t.Sharded || len(p.in.calls) == 1) {
		r.Err = t.unsent(c.Key(), r.Err)
	}
	r.Err = t.failed(p.ctx, r.Err)
	if p.in != nil && len(p.in.members) > 1 {
		r.Err = batchError{r.Err, p.in.id}
	}
	return r
}

// flush sends a batch in one flush. Of its calls, those that only differ in their
// keys go as one. Some are sent again: those whose script the server has forgotten,
// with its text, and those that it did not run because they came as one. After a
// redirection even those behind the first may be unknown to the server that got them.
func (t *Transport) flush(f *batch, b *batcher) {
	again := f.calls
	for turn := range maxTurns {
		sent := t.join(again)
		for i, c := range sent {
			text := unknownScript(c.err) && (turn > 1 || !slices.ContainsFunc(sent[:i], func(before *Call) bool { return before.Script == c.Script }))
			c.make(f, text)
		}
		t.pass(f, sent)
		for _, c := range sent {
			if c.members != nil {
				t.part(c)
			}
		}
		if again = b.unfinished(f); len(again) == 0 || f.Err() != nil {
			return
		}
	}
}

// maxTurns is how often calls of a batch are sent at most: together, together with
// the text of their script, alone, and alone with that of theirs.
const maxTurns = 4

// pass sends calls once.
func (t *Transport) pass(ctx context.Context, calls []*Call) {
	if t.pipeline == nil || len(calls) == 1 && !t.Sharded && calls[0].members == nil {
		for _, c := range calls {
			if c.err = t.client.Process(ctx, c.cmd); c.err == nil {
				c.err = c.cmd.Err()
			}
		}
		return
	}
	pipe := t.pipeline()
	for _, c := range calls {
		_ = pipe.Process(ctx, c.cmd) // only queues
	}
	_, err := pipe.Exec(ctx)
	if slices.ContainsFunc(calls, func(c *Call) bool { return c.cmd.Err() != nil }) {
		err = nil // each command has its own error, unless there was no connection
	}
	for _, c := range calls {
		c.err = cmp.Or(c.cmd.Err(), err)
	}
}

// failed does what a failure calls for, and returns its error for the caller:
// what came because the budget is over says so.
func (t *Transport) failed(ctx context.Context, err error) error {
	if t.reload != nil && (ClassOf(err) != ClassBusy || Moved(err)) { // maybe of a node that is gone
		t.reloads.Do(func() { t.reload(ctx) })
	}
	switch {
	case Answered(err):
		return t.advised(err)
	case !over(ctx), errors.Is(err, errBusy), isUnsent(err):
		return err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within the budget of %s: %w", t.limit, err)
	}
	return fmt.Errorf("no answer within the budget of %s: %w: %w", t.limit, context.DeadlineExceeded, err)
}

// unsent recognises the error of a command that has got no connection: go-redis
// waits for one with the command's context, and for answers with the deadline
// of the connection. That all connections were in use is no failure of Redis.
func (t *Transport) unsent(key string, err error) error {
	if !t.own || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	node := cmp.Or(t.only, t.nodeOf(key))
	if node != nil {
		pool, size := node.PoolStats(), node.Options().PoolSize
		if int(pool.TotalConns) >= size+int(pool.IdleConns) {
			return fmt.Errorf("%w: all %d connections are in use: %w", errBusy, size, err)
		}
	}
	return unsentError{fmt.Errorf("no connection within the budget of %s: %w", t.limit, err)}
}

// over reports that the budget is over. The deadline of a connection may be
// noticed before that of its context.
func over(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}
