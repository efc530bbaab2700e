// Package bridge carries what the packages of this module need of each other
// and do not promise to users. A package registers functions when it is
// initialized; the packages that import it take them from here.
package bridge

import (
	"context"
	"errors"
	"time"
)

// An ErrorClass says what an error of a store means for its caller.
type ErrorClass string

// The classes. Of all but the last two it is certain that the decision was not
// executed.
const (
	// ClassUnreachable: there was no connection.
	ClassUnreachable ErrorClass = "unreachable"
	// ClassBusy: this process had no connection free.
	ClassBusy ErrorClass = "busy"
	// ClassUnavailable: the server cannot decide now, as while it loads, is a
	// replica, or has no memory left.
	ClassUnavailable ErrorClass = "unavailable"
	// ClassMoved: the key is moving to another server, and the client has not
	// found it yet. The servers are well.
	ClassMoved ErrorClass = "moved"
	// ClassRefused: the server does not accept the credentials, or they do not
	// permit the command.
	ClassRefused ErrorClass = "refused"
	// ClassMisused: the server answered something else, as where a key holds
	// what is not ours. That concerns the check, not the server.
	ClassMisused ErrorClass = "misused"
	// ClassUnknown: no answer came. The decision may have been executed.
	ClassUnknown ErrorClass = "unknown"
)

// ErrGone says that the node of a cluster has no slots any more, so that there
// is nothing to probe.
var ErrGone = errors.New("algorithms: the node has no slots any more")

// MemoryStats say how full an algorithms.Memory is.
type MemoryStats struct {
	Keys       int    // keys with a count of their own
	Sketches   int    // sketches in use, in the shard that has the most
	Evicted    uint64 // replenished keys that made room for others, ever
	Overflowed uint64 // checks decided by a sketch, ever
}

// Algorithms is what package algorithms registers. The type parameters are its
// *Redis, *Memory, Limit, Check, Result and Charge, which this package cannot
// name.
type Algorithms[Redis, Memory, Limit, Check, Result, Charge any] struct {
	// ClassOf returns the class of a store's error, "" for nil. An error that is
	// not known, such as one of another store than Redis, is ClassUnknown.
	ClassOf func(error) ErrorClass

	// Shard is the node that counts a check: on a Redis Cluster the number of
	// the master that has its slot, as far as the client knows; 0 otherwise. It
	// does not wait.
	Shard func(r Redis, c *Check) int
	// Names returns human-readable names of shards.
	Names func(r Redis, shards ...int) []string
	// Probe sends a real, charged check to a shard, inside the budget. Its error
	// says that decisions would fail there.
	Probe func(ctx context.Context, r Redis, shard int) error
	// Beat says that the instance id uses the namespace, and returns how many
	// instances do. A lease of 0 takes the instance out.
	Beat func(ctx context.Context, r Redis, id string, lease time.Duration) (instances int, err error)
	// Budget is how long a decision may take.
	Budget func(r Redis) time.Duration
	// Warnings lists client options that make an outage of Redis worse.
	Warnings func(r Redis) []string
	// ServerWarnings asks the servers whether they may evict limiter keys.
	ServerWarnings func(ctx context.Context, r Redis) ([]string, error)

	// Follow counts in a memory what another store decided, each result by the
	// check that share returns for it, if any.
	Follow func(m Memory, results []Result, share func(*Result) (Check, bool))
	// Unfollow makes what Follow charged for results cost what the charges say.
	Unfollow func(m Memory, charges []Charge, share func(*Result) (Check, bool))
	// Stats returns what a memory holds now.
	Stats func(m Memory) MemoryStats

	// AlgorithmOf names a limit's algorithm, also where the limit leaves it out.
	AlgorithmOf func(Limit) string

	// Impatient reports whether a check was denied only because its slot in a
	// leaky_bucket would have begun after MaxDelay. Such a denial is neither to
	// be cached nor counted towards a ban.
	Impatient func(*Result) bool
}

// FromAlgorithms is the Algorithms that package algorithms registers.
var FromAlgorithms any
