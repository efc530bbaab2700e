package step

import (
	"cmp"
	"time"
)

// A Limit is a limit of package algorithms.
type Limit struct {
	Rate      int64
	Period    time.Duration
	Burst     int64
	Calendar  string
	Algorithm uint16 // its number; 0 means calendar_window if Calendar is set, token_bucket if Burst is, else sliding_window
}

// Number returns the algorithm's number, also if Algorithm is 0.
func (l Limit) Number() uint16 {
	switch {
	case l.Algorithm != 0:
		return l.Algorithm
	case l.Calendar != "":
		return CalendarWindow
	case l.Burst != 0:
		return TokenBucket
	}
	return SlidingWindow
}

// Name returns the algorithm's name, also if Algorithm is 0; "" if there is none of this number.
func (l Limit) Name() string {
	if row := l.Row(); row != nil {
		return row.Name
	}
	return ""
}

// A Name is what a count is called. Checks with equal names share a count, in every process:
// one Redis key has it, and one entry in each table of a process.
type Name struct {
	Rule, Key string
	Window    uint64 // see Limit.Window
}

// Window is a number for the algorithm and its period or calendar. The counts of a rule and
// a key differ in it. Rate and burst are no part of it, so that a changed rate continues the
// count.
func (l Limit) Window() uint64 {
	if l.Calendar != "" {
		return windowOf(idOf(l.Calendar), l.Number())
	}
	return windowOf(uint64(l.Period.Microseconds()), l.Number())
}

func windowOf(counts uint64, number uint16) uint64 { return counts<<4 ^ uint64(number) }

func (l Limit) quotaFor(row *Row) int64 {
	if row.Bucket {
		return cmp.Or(l.Burst, l.Rate)
	}
	return l.Rate
}

// The bounds within which doubles, the only numbers of Lua, are exact.
const (
	MaxExact    = 1 << 53             // products and sums
	MaxDuration = 1 << 52             // microseconds: times, periods, twice the time to refill a bucket
	MaxUnits    = 999_999_999_999_999 // the largest integer of a structured field of HTTP; below 2^50
	MaxSquared  = 94_906_265          // the largest number whose square is below MaxExact
	MaxLog      = 10_000              // units in a sliding_log: it has an entry for each
	MaxInFlight = 1_000_000           // requests in flight at once
)
