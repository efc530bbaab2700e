package failmode

import (
	"context"

	"github.com/seed75154129/ratelimit/algorithms"
)

// A Store is a limiter that parts of can fail on their own, such as the nodes
// of a Redis Cluster. It is what a [Breaker] needs to know of one.
type Store interface {
	algorithms.Counter

	// Shard is the part that counts a check: a small number from 0, the same for
	// the same part. A check may move to another part. It must not wait.
	Shard(c algorithms.Check) int
	// Names says for people which parts these are.
	Names(shards ...int) []string
	// Probe has a part decide and charge a check of its own, in bounded time.
	Probe(ctx context.Context, shard int) error
}

var _ Store = (*algorithms.Redis)(nil)
