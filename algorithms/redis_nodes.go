package algorithms

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/internal/bridge"
)

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
func (t *transport) nodeOf(key string) *redis.Client {
	if t.node == nil || !t.seen.Load() {
		return nil
	}
	node, err := t.node(key)
	if err != nil {
		return nil
	}
	return node
}

// shardOf numbers the server that holds a key; 0 if it is unknown.
func (t *transport) shardOf(key string) int {
	if node := t.nodeOf(key); node != nil {
		return t.nodes.number(node.Options().Addr)
	}
	return 0
}

// shard is the part of the store that counts a check and can fail on its own:
// on a Redis Cluster the number of the master that has its slot, on a Ring that
// of the shard, as far as the client knows; 0 otherwise. It is safe for
// concurrent use and does not wait.
func (r *Redis) shard(c *Check) int {
	t, _ := r.ready()
	if t.node == nil {
		return 0
	}
	tag := c.Key
	if len(tag) > maxPart || !plain(tag) {
		var room [maxPart]byte
		tag = string(appendPart(room[:0], tag))
	}
	return t.shardOf(tag)
}

// names returns human-readable shard names: the servers' addresses where they
// are known.
func (r *Redis) names(shards ...int) []string {
	t, _ := r.ready()
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

// probeLimit is a limit that probes do not exhaust.
var probeLimit = Limit{Rate: 1_000_000, Period: time.Second, Algorithm: FixedWindow}

const (
	// probeRule is no name that a rule of the middleware can have.
	probeRule = "~probe"
	// maxProbeKeys is how many keys probe tries to find one that a server holds.
	// A node with one slot of a thousand is missed once in sixty times.
	maxProbeKeys = 4096
	// anyNode is how many keys probe asks for at once while no node is known. Of
	// three masters, it misses a healthy one once in thousands of times.
	anyNode = 16
)

// probe sends a real, charged check to a shard, inside the budget. Its error
// says that decisions would fail there. Only a charge shows that: a replica, or
// a server without memory left, still answers what it need not write. A server
// that holds no keys any more is bridge.ErrGone. The keys are those of the rule
// "~probe", which no rule of the middleware can have; they expire after a second.
func (r *Redis) probe(ctx context.Context, shard int) error {
	t, err := r.ready()
	if err != nil {
		return err
	}
	checks := []Check{{Rule: probeRule, Limit: probeLimit}}
	switch {
	case t.node == nil && shard != 0:
		return redisError(fmt.Errorf("probe: no shard %d", shard))
	case t.node != nil && shard == 0:
		for i := range anyNode {
			checks = append(checks, Check{Rule: probeRule, Key: probeKey(i), Limit: probeLimit})
		}
	case t.node != nil:
		if checks[0].Key, err = t.keyOn(shard); err != nil {
			return err
		}
	}
	d, err := r.Take(ctx, checks...)
	if err == nil && len(checks) == 1 {
		err = d.Results[0].Err
	}
	return err
}

// keyOn returns the key of a probe that a server of a sharded client holds, or
// bridge.ErrGone.
func (t *transport) keyOn(shard int) (string, error) {
	for i := range maxProbeKeys {
		if key := probeKey(i); t.shardOf(key) == shard {
			return key, nil
		}
	}
	return "", bridge.ErrGone
}

func probeKey(i int) string { return "probe-" + strconv.Itoa(i) }
