package algorithms

import (
	"context"
	"errors"
	"math"
	"time"
)

// A Limiter decides whether a request may pass. Decorators embed the Limiter
// that they wrap and override what they change. Limiters are safe for
// concurrent use. A minor version may add methods: a Limiter of your own embeds
// another one, if only a [Memory] whose methods it overrides.
type Limiter interface {
	// Take charges every check or, if an enforced one is over its limit, none.
	// Its error says that no check could be decided, never that a request is
	// over. Where only some checks could not be decided, their results have an
	// Err, and the decision is not Allowed. Such a decision, or one that was
	// denied when time was up, may leave checks charged: their results say so in
	// Charged, and the caller must settle them, as failmode.Guard does.
	//
	// Two checks of one call must not share a count.
	Take(ctx context.Context, checks ...Check) (Decision, error)

	// Peek decides as Take would and charges nothing.
	Peek(ctx context.Context, checks ...Check) (Decision, error)

	// Settle makes each charge cost what it says, and returns the results as
	// they are now, in the order of the charges. It gives back no more than
	// waiting would have freed: a bucket gets back at most what it has not
	// refilled since, a window only what was counted in it, a queue only the
	// last slot, a log only a charge that at most 1000 others came after.
	// Results that were charged nothing are returned as they are.
	Settle(ctx context.Context, charges ...Charge) ([]Result, error)

	// Ban denies the checks' rules and keys for d, in every process; 0 lifts a ban.
	Ban(ctx context.Context, d time.Duration, checks ...Check) error

	// Reset forgets what the checks have used, under their algorithm and
	// period, and their bans.
	Reset(ctx context.Context, checks ...Check) error
}

// A Check is one limit that a request has to pass. Checks of equal Rule and Key
// share one count, wherever they are made, if their limits have the same
// algorithm and period.
type Check struct {
	Rule     string
	Key      string        // who is counted; "" is a key like any other
	Limit    Limit         // how much
	Cost     int64         // units this request takes; 0 means 1; negative is an error
	Fail     FailMode      // for when the store cannot count; zero counts locally
	Shadow   bool          // decided and counted, never enforced
	MaxDelay time.Duration // leaky_bucket: a longer Delay is a denial; 0 means any; negative is an error
}

// A Charge says what a charged result should have cost.
type Charge struct {
	Result Result
	Cost   int64 // 0 gives all back; more than was charged may go into debt; negative is an error
}

// A Source says who decided a check.
type Source string

// The sources.
const (
	SourceRedis      Source = "redis"       // Redis counted it
	SourceMemory     Source = "memory"      // this process counted it, as it should
	SourceFallback   Source = "fallback"    // this process counted it, because Redis could not
	SourceFailOpen   Source = "fail_open"   // not counted: passed
	SourceFailClosed Source = "fail_closed" // not counted: denied
)

// Never is a RetryAfter that does not end: the cost is above what the limit
// can hold.
const Never time.Duration = math.MaxInt64

// Errors. Test with [errors.Is].
var (
	// ErrDenied says that there is no room, or none in time. [Wait] returns it.
	ErrDenied = errors.New("algorithms: over the limit")
	// ErrInvalidCheck says that no limiter can decide a check: a mistake of the
	// caller, not of the store.
	ErrInvalidCheck = errors.New("algorithms: invalid check")
)

// errNoBans is what Ban returns.
var errNoBans = errors.New("algorithms: ban: not supported yet")
