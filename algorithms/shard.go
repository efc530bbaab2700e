package algorithms

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// maxNodes bounds the numbers of a cluster's nodes. What is met later, as where
// addresses change all the time, is shard 0.
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
	if number, ok := n.numbers[addr]; ok || len(n.addrs) >= maxNodes {
		return number
	}
	if n.numbers == nil {
		n.numbers = make(map[string]int)
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

// Shard is the part of the store that counts a check and can fail on its own:
// on a Redis Cluster the number of the master that has its slot, as far as the
// client knows; 0 otherwise. It is safe for concurrent use and waits for nobody.
func (r *Redis) Shard(c Check) int {
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

// Names says for people which parts of the store these shards are: the
// servers' addresses where they are known.
func (r *Redis) Names(shards ...int) []string {
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

// probe is a limit that a probe does not exhaust.
var probe = Limit{Rate: 1_000_000, Period: time.Second, Algorithm: FixedWindow}

// mostProbeKeys is how many keys Probe tries to find one that a node has: a
// node with one of a thousand slots is missed once in sixty.
const mostProbeKeys = 4096

// Probe has a part of the store decide and charge a check of its own, inside
// the budget. Its error says that decisions would fail there. (Only a charge
// tells: a replica, or a server without memory left, still answers what it does
// not have to write.) Of a node that has no slots any more there is nothing to
// ask. The keys are those of the rule "~probe"; they are gone after a second.
func (r *Redis) Probe(ctx context.Context, shard int) error {
	c := Check{Rule: "~probe", Limit: probe} // no name that a rule of the middleware can have
	if cluster, ok := r.Client.(*redis.ClusterClient); ok && shard > 0 {
		found := false
		for i := 0; i < mostProbeKeys && !found; i++ {
			c.Key = "probe-" + strconv.Itoa(i)
			found = r.nodeOf(cluster, c.Key) == shard
		}
		if !found {
			return nil
		}
	} else if shard != 0 {
		return fmt.Errorf("algorithms: redis: probe: no shard %d", shard)
	}
	d, err := r.Take(ctx, c)
	if err == nil {
		err = d.Results[0].Err
	}
	return err
}
