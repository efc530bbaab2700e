package step

import (
	"fmt"
	"time"
)

// minLease is the shortest Period of what is held, where that is a lease.
const minLease = time.Second

// OkFor reports whether the limit is valid. row is that of its algorithm.
func (l Limit) OkFor(row *Row) bool { return l.Invalid(row) == nil }

// Invalid lists everything that is wrong with the limit. row is that of its algorithm.
func (l Limit) Invalid(row *Row) (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if l.Rate < 1 {
		bad("rate must be at least 1, got %d", l.Rate)
	} else if row != nil && l.Rate > row.MaxRate {
		bad("rate must be at most %d"+row.why, row.MaxRate, l.Rate)
	}
	switch us := l.Period.Microseconds(); {
	case row != nil && row.Calendar:
		if l.Period != 0 {
			bad("period must be 0 for %s, whose Calendar says how long its windows are; got %s", row.Name, l.Period)
		}
		if _, err := ParseCalendar(l.Calendar); err != nil {
			bad("calendar %w", err)
		}
	case l.Calendar != "" && l.Period == 0: // the algorithm is wrong
	case l.Period < time.Microsecond:
		bad("period must be at least 1µs, got %s", l.Period)
	case l.Period%time.Microsecond != 0:
		bad("period must be whole microseconds, got %s", l.Period)
	case row != nil && row.Held && l.Period < minLease:
		bad("the lease of %s must be at least %s, got %s: a process renews it each third; write as in \"20 in flight\" or \"20/5m in_flight\"", row.Name, minLease, l.Period)
	case us >= MaxDuration:
		bad("period must be below 2^52 µs (%s), got %s", time.Duration(MaxDuration)*time.Microsecond, l.Period)
	}
	if row != nil && !row.Calendar && l.Calendar != "" {
		bad("calendar is for calendar_window, not for %s; leave one of them out", row.Name)
	}
	switch {
	case row == nil:
		bad("unknown algorithm %d; use one of %s", l.Algorithm, Names())
	case l.Burst < 0:
		bad("burst must not be negative, got %d", l.Burst)
	case l.Burst > 0 && !row.Bucket:
		bad("burst is for buckets, not for %s; leave it 0 or use %s", row.Name, "token_bucket")
	case l.Burst == 0 && row.Queue:
		bad("burst is required for %s: how many may be in the queue, including the one being served", row.Name)
	case l.Burst > MaxUnits:
		bad("burst must be at most %d"+forHeaders, int64(MaxUnits), l.Burst)
	case len(errs) == 0 && !l.fits(row):
		bad("burst %d at %d per %s: the time to refill it must be below 2^51 µs", l.quotaFor(row), l.Rate, l.Period)
	}
	return errs
}

// fits reports whether the time to refill a whole bucket is in the exact range.
func (l Limit) fits(row *Row) bool {
	if !row.Bucket {
		return true
	}
	p := Params{rate: l.Rate, Period: l.Period.Microseconds()}
	refill, _ := p.refill(l.quotaFor(row))
	return 2*refill < MaxDuration
}
