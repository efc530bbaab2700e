package transport

import (
	"sync"

	"strconv"

	"github.com/redis/go-redis/v9"
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
