package algorithms

import (
	"errors"
	"fmt"
	"time"

	"github.com/seed75154129/ratelimit/internal/step"
)

// An Algorithm is how a limit is counted. 0 means that the limit's other fields say it; see
// [Limit]. Its text form is its name, such as "token_bucket".
type Algorithm uint16

const (
	// FixedWindow counts units in windows of one period aligned to the Unix
	// epoch. Up to twice the rate can pass around a boundary.
	FixedWindow Algorithm = step.FixedWindow
	// SlidingWindow counts units in windows aligned to the Unix epoch. It adds the
	// units of the previous window, in proportion to how much of that window lies in
	// the last period. It assumes that these units came evenly. If they came at the
	// window's end, almost twice the rate can pass in one period. Constant memory; the
	// default.
	SlidingWindow Algorithm = step.SlidingWindow
	// SlidingLog remembers when each request came, and counts the units of the last
	// period. It is exact, but needs an entry for each admitted request. Rate is at
	// most 10,000.
	SlidingLog Algorithm = step.SlidingLog
	// TokenBucket holds up to Burst tokens, refilled at Rate per Period; each
	// unit takes one. Any period admits at most Burst + Rate units.
	TokenBucket Algorithm = step.TokenBucket
	// LeakyBucket queues requests and serves them one by one, Period/Rate apart. An
	// admitted request must wait for its Delay. Burst is required: it is how many requests
	// the queue can hold, including the one being served. For nginx's limit_req with
	// burst=N, set Burst to N+1; if it also has nodelay, use [GCRA] with that Burst. A
	// request is served when its slot begins, whatever its cost. So with costs up to C,
	// any period serves at most Rate + C-1 units.
	LeakyBucket Algorithm = step.LeakyBucket
	// GCRA is the generic cell rate algorithm of ITU-T I.371. It makes the same
	// decisions as [TokenBucket].
	GCRA Algorithm = step.GCRA
	// InFlight counts the requests that are under way at once, in all processes together:
	// at most Rate of them. Each request must be settled at 0 when it ends, as [Refund]
	// does; a Middleware does so by itself. Period is the lease: if a process dies, its
	// requests stop counting after one Period. A failmode.Guard renews the leases of
	// requests that still run. Without a Guard, Period must be longer than the work. A
	// [Memory] has no leases. [MaxInFlight] makes such a limit.
	//
	// A request costs 1. RetryAfter of a denial is one second, because it is not known when
	// a request will end. ResetAfter is 0.
	InFlight Algorithm = step.InFlight
	// CalendarWindow counts units in days, weeks (from Monday), months, quarters or
	// years of a time zone. A window begins at the first instant that has its date,
	// so a day may have 23 or 25 hours. The store's clock chooses the window. If
	// it is more than a window from this process's clock, that is an error.
	CalendarWindow Algorithm = step.CalendarWindow
)

// String returns the algorithm's name; "" for 0.
func (a Algorithm) String() string {
	if row := step.Lookup(uint16(a)); row != nil {
		return row.Name
	} else if a == 0 {
		return ""
	}
	return fmt.Sprintf("Algorithm(%d)", uint16(a))
}

// MarshalText returns the algorithm's name.
func (a Algorithm) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

var errUnknownAlgorithm = errors.New("unknown algorithm")

// UnmarshalText reads an algorithm's name. If there is none of this name, the error lists the
// names, and a is unchanged.
func (a *Algorithm) UnmarshalText(text []byte) error {
	for i := range step.Table {
		if row := &step.Table[i]; row.Name == string(text) {
			*a = Algorithm(row.Number)
			return nil
		}
	}
	return fmt.Errorf("%w %q; use one of %s", errUnknownAlgorithm, text, step.Names())
}

// A Limit is how much is allowed: Rate units in each Period, or in each window of a
// calendar.
//
// Its text form is "100/1m", "10/s burst 20", "5/1m fixed_window" or
// "100000/month@Europe/Berlin"; see [ParseLimit].
type Limit struct {
	Rate      int64         // units in each Period, or in each window of Calendar; at least 1
	Period    time.Duration // whole microseconds; at least 1 µs. calendar_window: 0
	Burst     int64         // buckets only: units that may come at once; 0 means Rate (leaky_bucket: required)
	Calendar  string        // calendar_window only: day, week, month, quarter or year, and a zone: "month@Europe/Berlin"
	Algorithm Algorithm     // 0 means CalendarWindow if Calendar is set, TokenBucket if Burst is set, else SlidingWindow
}

// PerSecond is a [SlidingWindow] limit of rate units in each second. A client that has
// used them up waits at most 1 + 1/rate seconds. If the rate is low, use [SlidingLog],
// with which a client waits at most one second.
func PerSecond(rate int64) Limit { return Limit{Rate: rate, Period: time.Second} }

// PerMinute is a [SlidingWindow] limit of rate units in each minute. A client that has
// used them up waits at most 1 + 1/rate minutes: 72 seconds for PerMinute(5). If the rate
// is low, as for logins, use [SlidingLog], with which a client waits at most one minute.
func PerMinute(rate int64) Limit { return Limit{Rate: rate, Period: time.Minute} }

// PerHour is a [SlidingWindow] limit of rate units in each hour. A client that has used
// them up waits at most 1 + 1/rate hours: two hours for PerHour(1). If the rate is low, as
// for password resets, use [SlidingLog], with which a client waits at most one hour.
func PerHour(rate int64) Limit { return Limit{Rate: rate, Period: time.Hour} }

// PerDay is a [CalendarWindow] limit of n units in each day of a time zone, such as
// "Europe/Berlin" or "UTC". [Limit.Validate] reports a zone that this program cannot
// load; import time/tzdata where the machine has no zones.
func PerDay(n int64, zone string) Limit { return Limit{Rate: n, Calendar: "day@" + zone} }

// PerMonth is a [CalendarWindow] limit of n units in each month of a time zone. For months
// that begin on another day, write Limit{Rate: n, Calendar: "month:15@UTC"}; in a month
// without that day, the window begins on the last day.
func PerMonth(n int64, zone string) Limit { return Limit{Rate: n, Calendar: "month@" + zone} }

// defaultLease is the lease of a limit whose text has none.
const defaultLease = 15 * time.Second

// MaxInFlight is an [InFlight] limit of n requests at once, with a lease of 15 s. Its
// text form is "20 in flight"; with another lease it is "20/5m in_flight".
//
// Beside it, write a limit with a rate by the same key: a Guard remembers denials by
// MaxInFlight for 20 ms only, unless all n requests run in the Guard's process. If clients share a key, one client can take up all n: limit each
// client as well.
func MaxInFlight(n int64) Limit {
	return Limit{Rate: n, Period: defaultLease, Algorithm: InFlight}
}

// Quota is the number of units that an unused key can spend at once: Burst for buckets,
// or Rate if Burst is 0; Rate for windows. The header X-RateLimit-Limit shows it.
func (l Limit) Quota() int64 {
	if l.Burst == 0 {
		return l.Rate
	}
	return l.step().Quota()
}

// step converts the limit to that of package step.
func (l *Limit) step() step.Limit {
	return step.Limit{Rate: l.Rate, Period: l.Period, Burst: l.Burst, Calendar: l.Calendar, Algorithm: uint16(l.Algorithm)}
}

// window tells the counts of a rule and a key apart.
func (l *Limit) window() uint64 { return l.step().Window() }

// row finds the algorithm's row, or nil.
func (l Limit) row() *step.Row { return l.step().Row() }

// held reports whether a charge by the limit is a request under way.
func (l *Limit) held() bool {
	row := l.row()
	return row != nil && row.Held
}

// Validate reports everything that is wrong with the limit, or nil.
//
// Redis computes in doubles, so Validate also rejects limits that whole numbers below
// 2^53 cannot represent. Rate and Burst must be below 10^15, which is enough to count
// bytes. Rate must be at most 94,906,265 for sliding_window, and 10,000 for sliding_log.
// Period must be below 2^52 µs, and the time to refill Burst below 2^51 µs.
func (l Limit) Validate() error {
	if l == (Limit{}) {
		return errors.New(`no limit; write one such as ratelimit.PerMinute(100), in a file "100/1m"`)
	}
	return errors.Join(l.step().Invalid(l.row())...)
}
