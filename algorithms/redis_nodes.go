package algorithms

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/internal/bridge"
)

// maxNodes bounds the numbers of a cluster's nodes. Where addresses change all
// the time, numbering begins anew after so many.
const maxNodes = 1024

// nodes numbers the masters of a cluster in the order in which they are met,
// from 1. They are known by address: a replica that is promoted is another one,
// and slots that move belong to another one at once.
type nodes struct {
	known atomic.Bool // the client has seen the cluster, so asking it takes no time

	mu      sync.RWMutex
	numbers map[string]int
	addrs   []string
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

// shard is the part of the store that counts a check and can fail on its own:
// on a Redis Cluster the number of the master that has its slot, as far as the
// client knows; 0 otherwise. It is safe for concurrent use and waits for nobody.
func (r *Redis) shard(c *Check) int {
	cluster, ok := r.Client.(*redis.ClusterClient)
	if !ok || !r.nodes.known.Load() {
		return 0 // how a Ring, or a client that wraps one, spreads keys is its own secret
	}
	tag := c.Key
	if len(tag) > maxPart || !plain(tag) {
		var room [maxPart]byte
		tag = string(appendPart(room[:0], tag))
	}
	return r.nodeOf(cluster, tag)
}

func (r *Redis) nodeOf(cluster *redis.ClusterClient, tag string) int {
	node, err := cluster.MasterForKey(context.Background(), tag)
	if err != nil {
		return 0
	}
	return r.nodes.number(node.Options().Addr)
}

// names returns human-readable shard names: the servers' addresses where they
// are known.
func (r *Redis) names(shards ...int) []string {
	var names []string
	for _, shard := range shards {
		name, known := r.nodes.addr(shard)
		if !known {
			name = "redis"
			if client, ok := r.Client.(*redis.Client); ok {
				name = client.Options().Addr
			}
		}
		names = append(names, name)
	}
	return names
}

// probeLimit is a limit that probes do not exhaust.
var probeLimit = Limit{Rate: 1_000_000, Period: time.Second, Algorithm: FixedWindow}

const (
	// maxProbeKeys is how many keys probe tries to find one that a node has: a
	// node with one of a thousand slots is missed once in sixty.
	maxProbeKeys = 4096
	// anyNode is how many keys probe asks for at once while no node is known: of
	// three masters, one that lives is not among them once in thousands.
	anyNode = 16
)

// probe sends a real, charged check to a shard, inside the budget. Its error says that decisions would fail there. (Only a charge
// tells: a replica, or a server without memory left, still answers what it does
// not have to write.) A node that has no slots any more is bridge.ErrGone. The keys
// are those of the rule "~probe"; they are gone after a second.
func (r *Redis) probe(ctx context.Context, shard int) error {
	// No name that a rule of the middleware can have.
	checks := []Check{{Rule: "~probe", Limit: probeLimit}}
	cluster, ok := r.Client.(*redis.ClusterClient)
	switch {
	case ok && shard == 0:
		for i := range anyNode {
			checks = append(checks, Check{Rule: "~probe", Key: probeKey(i), Limit: probeLimit})
		}
	case ok:
		i := 0
		for i < maxProbeKeys && r.nodeOf(cluster, probeKey(i)) != shard {
			i++
		}
		if i == maxProbeKeys {
			return bridge.ErrGone
		}
		checks[0].Key = probeKey(i)
	case shard != 0:
		return fmt.Errorf("algorithms: redis: probe: no shard %d", shard)
	}
	d, err := r.Take(ctx, checks...)
	if err == nil && len(checks) == 1 {
		err = d.Results[0].Err
	}
	return err
}

func probeKey(i int) string { return "probe-" + strconv.Itoa(i) }
