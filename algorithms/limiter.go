package algorithms

import (
	"context"
	"errors"
	"math"
	"time"
)

// A Limiter decides whether a request may pass. Limiters are safe for concurrent
// use.
//
// Decorators embed the Limiter that they wrap and override what they change. A
// minor version may add methods, so a Limiter of your own must embed another one,
// such as a [Memory].
type Limiter interface {
	// Take charges every check or, if an enforced one is over its limit, none.
	//
	// An error means that no check could be decided, never that a request is over
	// its limit. If only some checks could not be decided, their results have an
	// Err, and the decision is not Allowed. Such a decision, or one that was
	// denied when time was up, may leave checks charged. Their results have a
	// Charged above 0, and the caller must settle them, as failmode.Guard does.
	//
	// Two checks of one call must not share a count.
	Take(ctx context.Context, checks ...Check) (Decision, error)

	// Peek decides as Take would and charges nothing.
	Peek(ctx context.Context, checks ...Check) (Decision, error)

	// Settle makes each charge cost what it says, and returns the results as
	// they are now, in the order of the charges. Results that were charged
	// nothing are returned as they are.
	//
	// All copies of a result are one charge, in this process. Settle changes what
	// the charge costs now, whichever copy is passed. A charge settled at 0 has
	// ended, and settling it again does nothing. After an error, a charge may be
	// settled again: if it is unknown whether it was settled, it counts as the
	// lower of both costs, so nothing is given back twice.
	//
	// Settle gives back no more than waiting would have freed. A bucket gets back
	// at most what it has not refilled since, a window only what was counted in
	// it, a queue only the last slot, and a log only a charge that at most 1000
	// others came after.
	Settle(ctx context.Context, charges ...Charge) ([]Result, error)

	// Ban denies the checks' rules and keys for d, in every process, and never for
	// less than they are banned already. 0 lifts a ban, and forgets the denials that
	// would lead to one; counts stay.
	//
	// A check with a Ban obeys it, whatever its limit is. One without a Ban obeys it
	// in a Memory too, but in Redis only if its algorithm and period are those of a
	// check that was banned.
	Ban(ctx context.Context, d time.Duration, checks ...Check) error

	// Reset forgets what the checks have used, under their algorithm and
	// period, and their rules' and keys' bans. It does not know the charges that
	// were made before: a Settle that lowers one may give back what others have
	// used since. Requests in flight are no such charges: a Memory keeps them, and a
	// Guard counts them again within a third of their lease.
	Reset(ctx context.Context, checks ...Check) error
}

// A Check is one limit that a request must pass. Checks with the same Rule and
// Key share one count, in every process, if their limits have the same algorithm
// and period.
type Check struct {
	Rule     string        // what is counted; a name that all processes share
	Key      string        // who is counted; "" is a key like any other
	Limit    Limit         // how much the key may use
	Cost     int64         // units that this request takes; 0 means 1; negative is an error
	Fail     FailMode      // what to do if the store cannot count; zero counts locally
	Shadow   bool          // decided and counted, never enforced
	Lease    bool          // a hot key: a Guard takes units in blocks. Fixed and sliding windows; not with Ban or NoCache
	NoCache  bool          // its denials are not cached, since what denied may be given back at any time
	spared   bool          // a denial does not count towards the ban
	hold     int64         // in_flight: the request's name, from a Guard; 0 for a fresh one
	MaxDelay time.Duration // leaky_bucket: a longer Delay is a denial; 0 means any; negative is an error
	Ban      Ban           // what follows repeated denials; zero means nothing
}

// A Charge says what a charged result should have cost.
type Charge struct {
	Result Result // as Take or Settle returned it, or a copy
	Cost   int64  // 0 gives all back; more than was charged may go into debt; negative is an error
}

// A Source says what decided a check.
type Source string

// The sources.
const (
	SourceNone       Source = ""            // nothing decided it: another check had denied the request
	SourceRedis      Source = "redis"       // Redis counted it
	SourceMemory     Source = "memory"      // this process counted it, as configured
	SourceDenyCache  Source = "deny_cache"  // the store denied it a moment ago, and would still; or as much is in flight here as may be in all
	SourceLease      Source = "lease"       // units of a block that the store had granted to this process
	SourceFallback   Source = "fallback"    // this process counted it, because Redis could not
	SourceFailOpen   Source = "fail_open"   // not counted: passed
	SourceFailClosed Source = "fail_closed" // not counted: denied
)

// Never is the RetryAfter of a check whose cost is above what the limit can hold.
const Never time.Duration = math.MaxInt64

// Errors. Test with [errors.Is].
var (
	// ErrDenied means that there is no room, or none in time. [Wait] returns it.
	ErrDenied = errors.New("algorithms: over the limit")
	// ErrInvalidCheck means that no limiter can decide a check. It is a mistake of
	// the caller, not of the store.
	ErrInvalidCheck = errors.New("algorithms: invalid check")
)
