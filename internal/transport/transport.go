package transport

import (
	"context"
	"fmt"
	"hash/maphash"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/internal/sampler"
	"github.com/seed75154129/ratelimit/internal/wait"
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
	owns      ownConns
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
	part     bool // the request has waited before
}

// Deadline is the end of the budget.
func (c *decisionContext) Deadline() (time.Time, bool) { return c.deadline, true }

// Done and Err do not pass on the caller's cancellation.
func (c *decisionContext) Done() <-chan struct{} { return nil }
func (c *decisionContext) Err() error            { return nil }

// Within starts the clock of a decision.
func (t *Transport) Within(ctx context.Context) context.Context {
	whole := time.Now().Add(t.limit)
	end := wait.EndOf(ctx, whole)
	return &decisionContext{ctx, end, end.Before(whole)}
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

// What to do if a client that should have one server has several.
const (
	setSharded = "the client spreads keys over servers: set Redis.Sharded"
	ofCluster  = "the server is a node of a cluster: use redis.NewClusterClient"
	permits    = "the server must permit EVALSHA, EVAL and what the scripts call, such as TIME; docs/operations.md has the list"
	noTags     = "the client sends keys with the same hash tag to several servers, so they are counted where nobody looks: set the proxy's hash tag to \"{}\", or use a proxy that has them"
)

// advised adds to an error what to do about it.
func (t *Transport) advised(err error) error {
	crossed := redis.HasErrorPrefix(err, "CROSSSLOT")
	switch {
	case t.only != nil && crossed && !t.Sharded:
		return fmt.Errorf("%w; %s; if it is a proxy, set Redis.Sharded", err, ofCluster)
	case t.only != nil && Moved(err):
		return fmt.Errorf("%w; %s", err, ofCluster)
	case crossed && !t.Sharded:
		return fmt.Errorf("%w; %s", err, setSharded)
	}
	return err
}

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

// maxNodes bounds the numbers of a client's servers. Where addresses change all
// the time, numbering begins anew after so many.
const maxNodes = 1024

// nodes numbers the servers of a sharded client in the order in which they are
// met, from 1. They are known by address: a replica that is promoted is another
// one, and slots that move belong to another one at once.
type nodes struct {
	mu      sync.RWMutex
	numbers map[string]int // guarded by mu
	addrs   []string       // guarded by mu
}

func (n *nodes) number(addr string) int {
	n.mu.RLock()
	number, ok := n.numbers[addr]
	n.mu.RUnlock()
	if ok {
		return number
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if number, ok := n.numbers[addr]; ok {
		return number
	}
	if n.numbers == nil || len(n.addrs) >= maxNodes {
		n.numbers, n.addrs = make(map[string]int), nil
	}
	n.addrs = append(n.addrs, addr)
	n.numbers[addr] = len(n.addrs)
	return len(n.addrs)
}

func (n *nodes) addr(number int) (string, bool) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if number < 1 || number > len(n.addrs) {
		return "", false
	}
	return n.addrs[number-1], true
}

// nodeOf returns the client of the server that holds a key, as far as the
// transport's client knows without asking; nil if it does not. Of a key, the
// hash tag is enough.
func (t *Transport) nodeOf(key string) *redis.Client {
	if t.node == nil || !t.seen.Load() {
		return nil
	}
	node, err := t.node(key)
	if err != nil {
		return nil
	}
	return node
}

// ShardOf numbers the server that holds a key; 0 if it is unknown.
func (t *Transport) ShardOf(key string) int {
	if node := t.nodeOf(key); node != nil {
		return t.nodes.number(node.Options().Addr)
	}
	return 0
}

// maxProbeKeys is how many keys KeyOn tries.
const maxProbeKeys = 4096

// KeyOn returns the key of a probe that a server of a sharded client holds, or
// ErrGone.
func (t *Transport) KeyOn(shard int) (string, error) {
	for i := range maxProbeKeys {
		if key := ProbeKey(i); t.ShardOf(key) == shard {
			return key, nil
		}
	}
	return "", ErrGone
}

// ProbeKey is one of the keys that KeyOn chooses from.
func ProbeKey(i int) string { return "probe-" + strconv.Itoa(i) }

// Names returns human-readable shard names: the servers' addresses where they
// are known.
func (t *Transport) Names(shards ...int) []string {
	var names []string
	for _, shard := range shards {
		name, known := t.nodes.addr(shard)
		if !known {
			name = t.name
		}
		names = append(names, name)
	}
	return names
}

// KnowsServers reports whether the client can say which server holds a key.
func (t *Transport) KnowsServers() bool { return t.node != nil }

// Seen notes that the client knows its servers.
func (t *Transport) Seen() { t.seen.Store(true) }

// Invalid says why a client cannot be used.
func Invalid(c Client, sharded bool) error { return kindOf(c, sharded).invalid }
