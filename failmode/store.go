package failmode

import (
	"context"

	"github.com/seed75154129/ratelimit/algorithms"
)

// A Store is a limiter that parts of can fail on their own, such as the nodes
// of a Redis Cluster. It is what a [Breaker] needs to know of one.
type Store interface {
	algorithms.Counter

	// Shards is how many parts there are; it does not change.
	Shards() int
	// Shard is the part that counts a check, from 0 to Shards()-1.
	Shard(c algorithms.Check) int
	// Names says for people which parts these are, given in ascending order.
	Names(shards ...int) []string
	// Probe has a part decide and charge a check of its own, in bounded time.
	Probe(ctx context.Context, shard int) error
}

var _ Store = (*algorithms.Redis)(nil)
