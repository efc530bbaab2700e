package algorithms

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"time"
)

// An Algorithm names how a limit is counted.
type Algorithm string

const (
	// FixedWindow counts units in windows of one period aligned to the Unix
	// epoch. Up to twice the rate can pass around a boundary.
	FixedWindow Algorithm = "fixed_window"
	// SlidingWindow counts units in windows aligned to the Unix epoch and adds
	// the share of the previous window that is still in view. It assumes that the
	// previous window's units came evenly: if they came late, almost twice the
	// rate can pass in one period. Constant memory; the default.
	SlidingWindow Algorithm = "sliding_window"
	// SlidingLog remembers when each request came and counts those of the last
	// period: exact, at the price of an entry for each admitted request. Rate is
	// at most 10,000.
	SlidingLog Algorithm = "sliding_log"
	// TokenBucket holds up to Burst tokens, refilled at Rate per Period; each
	// unit takes one. Any period admits at most Burst + Rate units.
	TokenBucket Algorithm = "token_bucket"
	// LeakyBucket queues requests and serves them one by one, Period/Rate apart:
	// an admitted request has a Delay to wait. Burst is how many may be in the
	// queue, including the one being served; required. nginx' limit_req with
	// burst=N is Burst N+1; with nodelay it is [GCRA]. A request is served when
	// its slot begins, whatever its cost: any period serves at most Rate + cost-1.
	LeakyBucket Algorithm = "leaky_bucket"
	// GCRA is the generic cell rate algorithm of ITU-T I.371, which decides as
	// [TokenBucket] does.
	GCRA Algorithm = "gcra"
)

// A Limit is how much is allowed: Rate units in each Period.
//
// Its text form is "100/1m", "10/s burst 20" or "5/1m fixed_window"; see
// [ParseLimit].
type Limit struct {
	Rate      int64         // units in each Period; at least 1
	Period    time.Duration // whole microseconds; at least 1 µs
	Burst     int64         // buckets only: units that may come at once; 0 means Rate (leaky_bucket: required)
	Algorithm Algorithm     // "" means SlidingWindow, or TokenBucket where Burst is set, as in the text form
}

// PerSecond is a [SlidingWindow] limit of rate units in each second. A client that
// has used them up has to wait for up to a second and 1/rate of one. For few units,
// [SlidingLog] makes it wait for no more than one.
func PerSecond(rate int64) Limit { return Limit{Rate: rate, Period: time.Second} }

// PerMinute is a [SlidingWindow] limit of rate units in each minute. A client that
// has used them up has to wait for up to a minute and 1/rate of one: 72 seconds of
// PerMinute(5). For few units, as on logins, [SlidingLog] makes it wait for no more
// than one.
func PerMinute(rate int64) Limit { return Limit{Rate: rate, Period: time.Minute} }

// PerHour is a [SlidingWindow] limit of rate units in each hour. A client that has
// used them up has to wait for up to an hour and 1/rate of one: two hours of
// PerHour(1). For few units, as on password resets, [SlidingLog] makes it wait for no
// more than one.
func PerHour(rate int64) Limit { return Limit{Rate: rate, Period: time.Hour} }

// Quota is the number of units that an unused key can spend at once: Burst (or
// Rate, where Burst is 0) for buckets, Rate for windows. X-RateLimit-Limit shows
// it.
func (l Limit) Quota() int64 {
	if row := l.row(); row != nil {
		return l.quota(row)
	}
	return l.Rate
}

func (l Limit) quota(row *algorithm) int64 {
	if row.bucket {
		return cmp.Or(l.Burst, l.Rate)
	}
	return l.Rate
}

// row finds the algorithm's row, or nil. It is done once for each check.
func (l Limit) row() *algorithm { return lookup(l.algorithm()) }

// algorithm names the algorithm, also where Algorithm is "".
func (l Limit) algorithm() Algorithm {
	switch {
	case l.Algorithm != "":
		return l.Algorithm
	case l.Burst != 0:
		return TokenBucket
	}
	return SlidingWindow
}

// The bounds inside which doubles, all that Lua has, are exact.
const (
	maxExact    = 1 << 53             // products and sums
	maxDuration = 1 << 52             // microseconds: times, periods, twice the time to refill a bucket
	maxUnits    = 999_999_999_999_999 // what a structured field of HTTP can hold, and below 2^50
	maxSquared  = 94_906_265          // the largest number whose square is below maxExact
	maxLog      = 10_000              // units in a sliding_log: it has an entry for each
)

// Validate reports everything that is wrong with the limit, or nil.
//
// Redis computes in doubles, so Validate also refuses limits that whole numbers
// below 2^53 cannot represent. Rate and Burst must be below 10^15, which is
// enough to count bytes. Rate must be at most 94,906,265 for sliding_window and
// 10,000 for sliding_log. Period must be below 2^52 µs, and the time to refill
// Burst below 2^51 µs.
func (l Limit) Validate() error {
	row := l.row()
	if l.okFor(row) {
		return nil
	}
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if l.Rate < 1 {
		bad("rate must be at least 1, got %d", l.Rate)
	} else if row != nil && l.Rate > row.maxRate {
		bad("rate must be at most %d"+row.why, row.maxRate, l.Rate)
	}
	switch us := l.Period.Microseconds(); {
	case l.Period < time.Microsecond:
		bad("period must be at least 1µs, got %s", l.Period)
	case l.Period%time.Microsecond != 0:
		bad("period must be whole microseconds, got %s", l.Period)
	case us >= maxDuration:
		bad("period must be below 2^52 µs (%s), got %s", time.Duration(maxDuration)*time.Microsecond, l.Period)
	}
	switch {
	case row == nil:
		bad("unknown algorithm %q; use one of %s", l.Algorithm, names())
	case l.Burst < 0:
		bad("burst must not be negative, got %d", l.Burst)
	case l.Burst > 0 && !row.bucket:
		bad("burst is for buckets, not for %s; leave it 0 or use %s", row.name, TokenBucket)
	case l.Burst == 0 && row.queue:
		bad("burst is required for %s: how many may be in the queue, including the one being served", row.name)
	case l.Burst > maxUnits:
		bad("burst must be at most %d"+forHeaders, int64(maxUnits), l.Burst)
	case len(errs) == 0:
		bad("burst %d at %d per %s: the time to refill it must be below 2^51 µs", l.quota(row), l.Rate, l.Period)
	}
	return errors.Join(errs...)
}

// okFor is Validate without the reasons, for every decision.
func (l Limit) okFor(row *algorithm) bool {
	return row != nil && l.Rate >= 1 && l.Rate <= row.maxRate &&
		l.Period >= time.Microsecond && l.Period%time.Microsecond == 0 && l.Period.Microseconds() < maxDuration &&
		l.Burst >= 0 && l.Burst <= maxUnits && (l.Burst == 0 || row.bucket) && (l.Burst > 0 || !row.queue) && l.fits(row)
}

// fits reports whether a full bucket is inside the exact range.
func (l Limit) fits(row *algorithm) bool {
	if !row.bucket {
		return true
	}
	hi, lo := bits.Mul64(uint64(l.quota(row)), uint64(l.Period.Microseconds()))
	if hi >= uint64(l.Rate) {
		return false
	}
	refill, _ := bits.Div64(hi, lo, uint64(l.Rate))
	return 2*refill < maxDuration
}
