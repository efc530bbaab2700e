// Package bridge carries what the packages of this module need of each other
// and do not promise to users. A package registers functions when it is
// initialized; the packages that import it take them from here.
package bridge

import (
	"context"
	"errors"
	"net"
	"reflect"
	"time"
)

// An ErrorClass says what an error of a store means for its caller.
type ErrorClass string

// The classes.
const (
	// ClassUnreachable: there was no connection. A Sentinel that does not know
	// the master and a certificate that is not trusted count as that.
	ClassUnreachable ErrorClass = "unreachable"
	// ClassBusy: this process had no connection free, too many commands under
	// way, or no time left to send a script that the server has forgotten.
	ClassBusy ErrorClass = "busy"
	// ClassUnavailable: the server cannot decide now, as while it loads, is a
	// replica, or has no memory left.
	ClassUnavailable ErrorClass = "unavailable"
	// ClassMoved: the key is moving to another server, and the client has not
	// found it yet. The servers are well.
	ClassMoved ErrorClass = "moved"
	// ClassRefused: the server does not accept the credentials or the client's
	// address, or it does not permit or know a command.
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
	Keys       int    // keys with a count of their own, and bans
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
	// NotPermitted reports that the server accepts the credentials, but does
	// not permit or know a command, by any version's words.
	NotPermitted func(error) bool
	// BatchOf identifies the batch of decisions that failed together with this
	// error: they are one failure. It is 0 for a decision that was sent alone.
	BatchOf func(error) uint64

	// Shard is the server that counts a check: on a Redis Cluster the number of
	// the master that has its slot, on a Ring that of the shard, as far as the
	// client knows; 0 otherwise. It does not wait.
	Shard func(r Redis, c *Check) int
	// Names returns human-readable names of shards.
	Names func(r Redis, shards ...int) []string
	// Probe sends a real, charged check to a shard, inside the budget. Its error
	// says that decisions would fail there.
	Probe func(ctx context.Context, r Redis, shard int) error
	// Dial opens a connection of its own to a shard, authenticated and used by
	// nobody else; errors.ErrUnsupported where it cannot.
	Dial func(ctx context.Context, r Redis, shard int) (net.Conn, error)
	// ProbeRequest is what a probe sends, for a connection of Dial.
	ProbeRequest func(r Redis, shard int) ([]byte, error)
	// Beat says that the instance id uses the namespace, and returns how many
	// instances do. A lease of 0 takes the instance out.
	Beat func(ctx context.Context, r Redis, id string, lease time.Duration) (instances int, err error)
	// Join counts one more user of r's namespace and server in this process. It
	// returns the id to beat with, which is the same for all of them, and how
	// many others there are: each of them counts locally, so two are a mistake.
	Join func(r Redis) (id string, others int)
	// Leave undoes one Join, and reports whether it was the last: then the
	// instance is to be taken out.
	Leave func(r Redis) (last bool)
	// Warm opens connections to the servers that decide and loads the scripts
	// there, so that the first decision finds both. ctx bounds it, not the
	// budget.
	Warm func(ctx context.Context, r Redis) error
	// Drop refuses the decisions that wait to be sent to a shard: it is away. They
	// fail as ClassBusy.
	Drop func(r Redis, shard int)
	// Idle returns a channel for each server. It is closed as soon as no decision
	// is under way there.
	Idle func(r Redis) []<-chan struct{}
	// Budget is how long a decision may take.
	Budget func(r Redis) time.Duration
	// Warnings lists client options that make an outage of Redis worse.
	Warnings func(r Redis) []string
	// ServerWarnings asks the servers whether they may evict limiter keys.
	ServerWarnings func(ctx context.Context, r Redis) ([]string, error)

	// Follow counts in a memory what another store decided, each result by the
	// check that share returns for it, if any.
	Follow func(m Memory, results []Result, share func(*Result) (Check, bool))
	// Unfollow makes what Follow charged for a charge's result cost what the charge says,
	// and notes it in the result as settled. The charge's result says what it cost before.
	Unfollow func(m Memory, charge Charge, settled *Result, share func(*Result) (Check, bool))
	// JoinFollowed lets Unfollow give back, with a result, the last units of an
	// older one's charge to the same window.
	JoinFollowed func(r, older *Result, units int64)
	// Stats returns what a memory holds now.
	Stats func(m Memory) MemoryStats
	// Clock has a memory that nobody has used yet take the time from now, which
	// must never step back: to decide as it was at other times than the present.
	Clock func(m Memory, now func() time.Time)
	// Banned returns what a check comes to whose key a memory knows to be banned,
	// by Follow or by hand; false if it knows of no ban.
	Banned func(m Memory, c *Check) (Result, bool)

	// AlgorithmOf names a limit's algorithm, also where the limit leaves it out.
	AlgorithmOf func(Limit) string
	// IsQueue reports whether requests may have to wait for what a limit admits.
	IsQueue func(Limit) bool

	// Impatient reports whether a check was denied only because its slot in a
	// leaky_bucket would have begun after MaxDelay. Such a denial is neither to
	// be cached nor counted towards a ban.
	Impatient func(*Result) bool
	// InvalidBan lists everything that is wrong with a check's Ban.
	InvalidBan func(*Check) []error
	// Spare makes a check whose denial does not count towards its ban. The ban
	// itself binds it.
	Spare func(*Check)
	// BanBegins reports whether the ban that a result tells of begins with it.
	BanBegins func(*Result) bool
	// BannedFor is how long the key of a result is banned from its At on; 0 if it
	// is not.
	BannedFor func(*Result) time.Duration

	// StateOf returns the state that a result left in its store, which only Again
	// understands; false where the store does not hand it out.
	StateOf func(*Result) (state [3]int64, ok bool)
	// Block is where a charged result of a window is counted: the start of the
	// window, in µs on the store's clock. InBlock says it of a result that was
	// charged to a block of units which were counted there.
	Block   func(*Result) int64
	InBlock func(r *Result, window int64)
	// NewResults makes results whose copies know what they are settled at: Update makes
	// a copy say what its charge costs now. SettleBy settles a result by what change does
	// with how many units more it is to cost, unless it reports that this failed.
	NewResults func(n int) []Result
	Update     func(*Result)
	SettleBy   func(r *Result, cost int64, change func(units int64) (ok bool))
	// Again decides a check by such a state, which does not depend on the check's
	// limit and cost. There is room if there is at the later of two times on the
	// store's clock, in µs, beside the units for which requests under way have
	// asked. Otherwise the verdict is as of the earlier time.
	Again func(c *Check, state [3]int64, later, earlier, underWay int64) Verdict
	// Valid reports whether a limiter could decide the checks of a call.
	Valid func([]Check) bool
}

// A Verdict is what a check comes to by a state.
type Verdict struct {
	Known                  bool // false if the state says nothing about the check
	Room                   bool
	Remaining              int64 // this and what follows only where there is no room
	RetryAfter, ResetAfter time.Duration
}

// FromAlgorithms is the Algorithms that package algorithms registers.
var FromAlgorithms any

// A CircuitState is what a circuit was last seen to do.
type CircuitState struct {
	Open   bool
	Since  time.Time // of the last opening or closing; zero if there was none
	Opened int64     // how often it has opened
	Err    error     // the last failure; nil if there was none
}

// Failmode is what package failmode registers. The type parameters are its
// *Guard, and *Memory, Check and Decision of package algorithms.
type Failmode[Guard, Memory, Check, Decision any] struct {
	// Instances is how many processes share the limits, as far as is known.
	Instances func(Guard) int
	// Circuits returns the states of the circuits that were needed so far.
	Circuits func(Guard) []CircuitState
	// Memory is what counts locally.
	Memory func(Guard) Memory
	// KnownOver reports whether the store denied a check a moment ago and would
	// still, as far as is known here. It asks nobody, and may be wrong.
	KnownOver func(g Guard, c *Check) bool
	// Observe has f see every call to the store: how long it took and what it
	// returned. f runs on the caller's goroutine.
	Observe func(g Guard, f func(took time.Duration, d Decision, err error))
}

// FromFailmode is the Failmode that package failmode registers.
var FromFailmode any

// IsNil reports whether a field that must be set is nil, or a nil pointer in an
// interface.
func IsNil(field any) bool {
	v := reflect.ValueOf(field)
	return field == nil || v.Kind() == reflect.Pointer && v.IsNil()
}
