package algorithms

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"time"
)

// A Limiter decides whether a request may pass.
//
// Take charges every check or, if an enforced one is over its limit, none. Its
// error says that no check could be decided, never that a request is over.
// Where only some could not be decided, their results carry Err, the decision is
// not Allowed, and the others stay charged: it is the caller's to settle them, as
// failmode.Fallback does.
//
// Take is safe for concurrent use. Two checks of one call must not share a
// count.
type Limiter interface {
	Take(ctx context.Context, checks ...Check) (Decision, error)
}

// A Counter can also show and mend what it counts. Every limiter of this
// module is one; a decorator whose Next is none returns [errors.ErrUnsupported].
type Counter interface {
	Limiter

	// Peek decides as Take would and charges nothing.
	Peek(ctx context.Context, checks ...Check) (Decision, error)

	// Settle makes each charge cost this many units instead: 0 gives it back,
	// less gives a part back, more may go into debt (of at most one period).
	// Giving back never makes room that waiting would not have made: a bucket
	// gets back at most what it has not refilled since, a window only what was
	// counted in it. Settle a result once; results that were charged nothing
	// are passed over.
	Settle(ctx context.Context, cost int64, charged ...Result) error

	// Reset forgets what the checks have used, under their algorithm and period.
	Reset(ctx context.Context, checks ...Check) error
}

// A Mode says what to do with a check when nobody can count it. Its values and
// their meaning are in package failmode; the zero value is to count locally.
type Mode int8

// A Check is one limit that a request has to pass. Checks of equal Rule and Key
// share one count, wherever they are made, if their limits have the same
// algorithm and period.
type Check struct {
	Rule   string
	Key    string // who is counted; "" is a key like any other
	Limit  Limit
	Cost   int64 // units this request takes; 0 means 1; negative is an error
	Fail   Mode  // for when nobody can count; see package failmode
	Shadow bool  // decided and counted, never enforced
}

// A Source says who decided a check.
type Source string

// Who decides.
const (
	SourceRedis      Source = "redis"       // a Redis counted it
	SourceMemory     Source = "memory"      // this process counted it, as it should
	SourceFallback   Source = "fallback"    // this process counted it, because Redis could not
	SourceFailOpen   Source = "fail_open"   // nobody counted it: passed
	SourceFailClosed Source = "fail_closed" // nobody counted it: denied
)

// Never is a RetryAfter that does not end: the cost is above what the limit
// can hold.
const Never time.Duration = math.MaxInt64

// A Result is what became of one [Check].
type Result struct {
	Check      Check         // as it was decided: in a fallback, with its share of the limit
	Source     Source        // who decided
	Allowed    bool          // the check had room; others may still have denied the request
	Charged    int64         // units taken: the cost, or 0 where the request was denied
	Remaining  int64         // units left
	RetryAfter time.Duration // until Cost units are free; 0 when Allowed; Never if they never will be
	ResetAfter time.Duration // until all units are free
	Delay      time.Duration // leaky_bucket: wait this long before serving
	At         time.Time     // when it was decided, on the deciding clock
	Err        error         // why this check could not be decided; nil where it was

	fraction int64 // leaky_bucket: of the µs At+Delay, over Rate: exactly when the slot begins
	followed int64 // units that Memory.Follow charged for it elsewhere
}

// denies reports whether the result denies its request.
func (r *Result) denies() bool { return !r.Allowed && !r.Check.Shadow }

// A Decision is what became of a request.
type Decision struct {
	Allowed bool     // no enforced check denied it
	Results []Result // of the checks answered, in their order
}

// Result returns the result of a rule's check.
func (d Decision) Result(rule string) (Result, bool) {
	for i := range d.Results {
		if d.Results[i].Check.Rule == rule {
			return d.Results[i], true
		}
	}
	return Result{}, false
}

// RetryAfter is the longest RetryAfter of the enforced checks that denied the
// request, 0 if none did.
func (d Decision) RetryAfter() time.Duration {
	var longest time.Duration
	for i := range d.Results {
		if r := &d.Results[i]; r.denies() {
			longest = max(longest, r.RetryAfter)
		}
	}
	return longest
}

// Delay is how long to wait before serving an admitted request: the longest
// Delay of its enforced checks, 0 if it was denied.
func (d Decision) Delay() time.Duration {
	var longest time.Duration
	for i := range d.Results {
		if r := &d.Results[i]; d.Allowed && !r.Check.Shadow {
			longest = max(longest, r.Delay)
		}
	}
	return longest
}

// Tightest returns the enforced result with the fewest such requests left
// (Remaining/Cost) and, among equals, the longest ResetAfter. Checks that could
// not be decided do not take part.
func (d Decision) Tightest() (Result, bool) {
	tightest, fewest := -1, int64(0)
	for i := range d.Results {
		r := &d.Results[i]
		if r.Check.Shadow || r.Err != nil {
			continue
		}
		left := r.Remaining / max(r.Check.Cost, 1)
		if tightest < 0 || left < fewest || left == fewest && r.ResetAfter > d.Results[tightest].ResetAfter {
			tightest, fewest = i, left
		}
	}
	if tightest < 0 {
		return Result{}, false
	}
	return d.Results[tightest], true
}

// ErrInvalidCheck is wrapped by errors about checks that no limiter can decide:
// a mistake of the caller, not of the store.
var ErrInvalidCheck = errors.New("algorithms: invalid check")

// Validate reports everything that is wrong with the check, or nil. Its errors
// wrap [ErrInvalidCheck] and, where the limit is at fault, [ErrInvalidLimit].
func (c Check) Validate() error {
	var errs []error
	if err := c.Limit.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("%w: rule %q: %w", ErrInvalidCheck, c.Rule, err))
	}
	if c.Cost < 0 {
		errs = append(errs, fmt.Errorf("%w: rule %q: cost must not be negative, got %d", ErrInvalidCheck, c.Rule, c.Cost))
	}
	return errors.Join(errs...)
}

// params are a check's numbers, as both twins of its step need them. Bucket
// times are in two parts: whole microseconds and a fraction over the rate.
type params struct {
	*algorithm
	rate, period int64 // units and µs
	cost         int64 // at least 1; above the quota it is the quota + 1, which no state admits
	never        bool  // the cost is above the quota
	costW, costF int64 // buckets: time that the cost takes to refill
	fullW, fullF int64 // buckets: time that the whole bucket takes to refill
}

// prepare validates the checks and computes their numbers. Room for four lets
// the usual request go without an allocation.
func prepare(checks []Check, room *[4]params) ([]params, error) {
	ps := room[:0]
	for i := range checks {
		c := &checks[i]
		if !c.Limit.ok() || c.Cost < 0 {
			return nil, c.Validate()
		}
		for j := range checks[:i] {
			if c.sharesCountWith(&checks[j]) {
				return nil, fmt.Errorf("%w: rule %q: checks %d and %d of one call have the same rule and key", ErrInvalidCheck, c.Rule, j, i)
			}
		}
		ps = append(ps, paramsOf(c))
	}
	return ps, nil
}

func (c *Check) sharesCountWith(o *Check) bool {
	return c.Rule == o.Rule && c.Key == o.Key && c.Limit.Period == o.Limit.Period &&
		algorithmOr(c.Limit.Algorithm) == algorithmOr(o.Limit.Algorithm)
}

func paramsOf(c *Check) params {
	a, _ := lookup(c.Limit.Algorithm)
	quota := c.Limit.Quota()
	p := params{algorithm: a, rate: c.Limit.Rate, period: c.Limit.Period.Microseconds(), cost: max(c.Cost, 1)}
	if p.never = p.cost > quota; p.never {
		p.cost = quota + 1
	}
	if a.bucket {
		p.costW, p.costF = p.refill(p.cost)
		p.fullW, p.fullF = p.refill(quota)
	}
	return p
}

// refill is the time that a bucket takes to refill these units.
func (p *params) refill(units int64) (w, f int64) {
	hi, lo := bits.Mul64(uint64(units), uint64(p.period))
	q, r := bits.Div64(hi, lo, uint64(p.rate))
	return int64(q), int64(r)
}

// micros converts, and takes what a Duration cannot hold for Never.
func micros(us int64) time.Duration {
	if us > int64(Never/time.Microsecond) {
		return Never
	}
	return time.Duration(us) * time.Microsecond
}
