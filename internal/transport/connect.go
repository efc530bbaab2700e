package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// maxConnecting bounds the connections to one server that are made in the
	// background at a time.
	maxConnecting = 4
	// connectPatience is how long one of them may take.
	connectPatience = 5 * time.Second
)

// A connector opens connections whose handshake does not fit into the budget of
// a decision. go-redis finishes a dial whose caller has left, but closes a
// connection whose handshake, credentials included, does not fit into the
// caller's context. If it never fits, no decision would ever get a connection.
//
// Its goroutines end when the caller closes the client, with the client's timeouts,
// or after connectPatience. They do not end with the contexts of callers, because they
// must outlive the budgets of decisions.
type connector struct {
	mu       sync.Mutex
	underWay map[*redis.Client]int // by server, nil for all; guarded by mu
}

// begin reports whether one more connection to a server may be made.
func (c *connector) begin(node *redis.Client) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.underWay[node] >= maxConnecting {
		return false
	}
	if c.underWay == nil {
		c.underWay = map[*redis.Client]int{}
	}
	c.underWay[node]++
	return true
}

func (c *connector) end(node *redis.Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.underWay[node]--; c.underWay[node] == 0 {
		delete(c.underWay, node)
	}
}

// connect opens a connection to the server that holds the key, in the
// background, if a decision may have failed for want of one. It does not wait.
func (t *Transport) connect(key string, err error) {
	if err == nil || notConnected(err) || Answered(err) {
		return
	}
	node := t.nodeOf(key)
	if t.each == nil && t.Sharded || !t.connector.begin(node) {
		return
	}
	go func() {
		defer t.connector.end(node)
		ctx, cancel := context.WithTimeout(context.Background(), connectPatience)
		defer cancel()
		// TIME is the cheapest command that the scripts need permission for too.
		open := func(ctx context.Context, node *redis.Client) error {
			var errs []error
			for _, pipelines := range t.pools() {
				errs = append(errs, recovered(func() error { return t.processOn(ctx, node, pipelines, redis.NewCmd(ctx, "time")) }))
			}
			return errors.Join(errs...)
		}
		// What fails fails again with the next decision.
		if node != nil || t.each == nil {
			_ = open(ctx, node)
		} else if t.each(ctx, open) == nil {
			t.seen.Store(true)
		}
	}()
}

// pools are those of a client's pools of connections to a server that decisions use: that
// of commands (false), that of pipelines (true), or both. All decisions of sharded clients,
// and all that share a batch, are sent in pipelines.
func (t *Transport) pools() []bool {
	switch {
	case !t.own:
		return []bool{false}
	case t.Sharded:
		return []bool{true}
	}
	return []bool{false, true}
}

// processOn sends commands to one server, on a connection of one of pools. A nil node
// means the server of a client that has only one.
func (t *Transport) processOn(ctx context.Context, node *redis.Client, pipelines bool, cmds ...redis.Cmder) error {
	if pipelines && node != nil {
		pipe := node.Pipeline()
		for _, cmd := range cmds {
			_ = pipe.Process(ctx, noRetry{cmd}) // only queues
		}
		_, err := pipe.Exec(ctx)
		return err
	}
	client := t.client
	if node != nil {
		client = node
	}
	for _, cmd := range cmds {
		if err := client.Process(ctx, noRetry{cmd}); err != nil {
			return err
		}
	}
	return nil
}

// Warm opens connections to the servers that decide, as many as MinIdleConns asks for, and
// loads the scripts there, so that the first decision finds both. On each connection it sends
// a probe, whose calls are made for a key: a server may load scripts that it does not run. If
// a server refuses SCRIPT, the probe sends its script's text.
//
// Warm takes as long as ctx and the client's timeouts allow, whatever the budget. An error
// says so if a client of one server reaches several, or a node of a cluster, and if a proxy
// ignores hash tags.
func (t *Transport) Warm(ctx context.Context, probe func(key string) []*Call) error {
	failed, err := run(ctx, t, func() error { return t.warm(ctx, probe) })
	return cmp.Or(err, failed)
}

func (t *Transport) warm(ctx context.Context, probe func(key string) []*Call) error {
	if t.each == nil {
		return recovered(func() error { return t.prepare(ctx, nil, false, probe) })
	}
	var servers runIDs
	return t.each(ctx, func(ctx context.Context, node *redis.Client) error {
		t.seen.Store(true)
		errs, opening := make(chan error), 0
		for _, pipelines := range t.pools() {
			connections := max(t.options.MinIdleConns, 1)
			if pipelines && !t.Sharded {
				connections = min(maxPlaces, t.poolSize())
			}
			opening += connections
			for range connections {
				go func() {
					errs <- recovered(func() error {
						if err := t.prepare(ctx, node, pipelines, probe); err != nil || t.Sharded {
							return err
						}
						return servers.add(info(ctx, "default", func(cmd redis.Cmder) error { return t.processOn(ctx, node, pipelines, cmd) }))
					})
				}()
			}
		}
		var err error
		for range opening {
			if failed := <-errs; failed != nil {
				err = failed
			}
		}
		return err
	})
}

// prepare loads the scripts and sends a probe, on one connection.
func (t *Transport) prepare(ctx context.Context, node *redis.Client, pipelines bool, probe func(key string) []*Call) error {
	keys := []string{""}
	switch {
	case t.KnowsServers():
		key, err := t.KeyOn(t.nodes.number(node.Options().Addr))
		if err != nil {
			return nil //nolint:nilerr // it has no slots any more
		}
		keys[0] = key
	case t.Sharded: // a node of a cluster sends some keys away; a proxy without hash tags looks for some elsewhere
		for i := range proxyKeys {
			keys = append(keys, ProbeKey(i))
		}
	}
	var cmds []redis.Cmder
	for _, s := range t.scripts {
		cmds = append(cmds, redis.NewStringCmd(ctx, "script", "load", s.text))
	}
	refused := t.processOn(ctx, node, pipelines, cmds...)
	if refused != nil && notConnected(refused) {
		return refused
	}
	for _, key := range keys {
		for _, c := range probe(key) {
			err := t.processOn(ctx, node, pipelines, c.make(ctx, refused != nil))
			if unknownScript(err) { // a proxy has loaded it into one of its servers
				err = t.processOn(ctx, node, pipelines, c.make(ctx, true))
			}
			if err != nil && (!Moved(err) || !t.KnowsServers()) {
				if err = t.advised(err); Answered(err) && !Moved(err) && !begins(textOf(err), declines) {
					err = fmt.Errorf("%w; %s", err, permits)
				}
				return fmt.Errorf("decide for a probe's key: %w", err)
			}
			if err == nil && t.Sharded && !t.KnowsServers() && len(c.Keys) > 1 {
				last := c.Keys[len(c.Keys)-1] // where the call's first key is; by itself, it may be looked for elsewhere
				found := redis.NewCmd(ctx, "eval", "return redis.call('exists', KEYS[1])", 1, last)
				if err := t.processOn(ctx, node, pipelines, found); err == nil && found.Val() == int64(0) {
					return errors.New(noTags)
				}
			}
		}
	}
	return nil
}

// proxyKeys is how many keys are tried at what should be a proxy. Of a cluster of two
// masters, one has all of them once in 60,000 times.
const proxyKeys = 16

// runIDs tell apart the processes that connections of one client reach.
type runIDs struct {
	mu    sync.Mutex
	first string
}

// add fails if a server is not the first one, or is a node of a cluster. Servers that do
// not say so, or do not permit INFO, pass.
func (r *runIDs) add(about string, err error) error {
	if err != nil {
		return nil
	}
	if field(about, "cluster_enabled") == "1" {
		return errors.New(ofCluster)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	id := field(about, "run_id")
	if id == "" || id == r.first {
		return nil
	}
	if r.first == "" {
		r.first = id
		return nil
	}
	return fmt.Errorf("connections reach several servers, with the run ids %s and %s; %s", r.first, id, setSharded)
}
