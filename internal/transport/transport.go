package transport

import (
	"context"
	"hash/maphash"
	"slices"
	"strings"
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

// turnOf says in which line a decision waits for its turn: in that of its rules,
// which are what keys end with.
func (t *Transport) turnOf(calls []*Call) (turn uint64) {
	for _, c := range calls {
		for _, key := range c.Keys {
			key := key.(string)
			turn = turn*31 + maphash.String(t.seed, key[strings.LastIndexByte(key, '}')+1:])
		}
	}
	return turn
}

// batcher returns what sends to a shard, and makes it if there is none.
func (t *Transport) batcher(shard int) *batcher {
	if all := *t.batchers.Load(); shard < len(all) {
		return all[shard]
	}
	t.adding.Lock()
	defer t.adding.Unlock()
	all := slices.Clone(*t.batchers.Load())
	for len(all) <= shard {
		all = append(all, newBatcher(t, len(all)))
	}
	t.batchers.Store(&all)
	return all[shard]
}

// Send runs one call on the only server.
func (t *Transport) Send(ctx context.Context, c *Call) ([]int64, error) {
	p := &pending{only: [1]*Call{c}}
	p.begin(ctx, p.only[:])
	t.batcher(0).do(p, t.direct)
	r := t.answer(p, c)
	if instead := c.instead(r.Err); instead != nil {
		return t.Send(ctx, instead)
	}
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
		for i, at := range g.at {
			responses[at] = t.answer(&g.pending, g.calls[i])
		}
	}
	t.Again(ctx, responses, func(i int) *Call { return calls[i].instead(responses[i].Err) })
	return responses
}

// Again sends other calls in place of some whose responses are there, where instead
// returns one.
func (t *Transport) Again(ctx context.Context, responses []Response, instead func(i int) *Call) {
	var calls []*Call
	var at []int
	for i := range responses {
		if c := instead(i); c != nil {
			calls, at = append(calls, c), append(at, i)
		}
	}
	if len(calls) == 0 {
		return
	}
	for j, resp := range t.SendAll(ctx, calls) {
		responses[at[j]] = resp
	}
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
	r.Err = t.failed(p.ctx, c.Key(), r.Err)
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
	_, _ = pipe.Exec(ctx) // each command has its own error
	for _, c := range calls {
		c.err = c.cmd.Err()
	}
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
