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
	Algorithm string // "" means calendar_window if Calendar is set, token_bucket if Burst is, else sliding_window
}

// Name returns the algorithm's name, also if Algorithm is "".
func (l Limit) Name() string {
	switch {
	case l.Algorithm != "":
		return l.Algorithm
	case l.Calendar != "":
		return "calendar_window"
	case l.Burst != 0:
		return "token_bucket"
	}
	return "sliding_window"
}

// A Counting is how a limit counts. It tells the counts of a rule and a key apart.
type Counting struct {
	Period    time.Duration
	Calendar  string
	Algorithm string
}

// Counting returns how the limit counts. Limits that count alike share a count, so that a
// changed rate continues it.
func (l *Limit) Counting() Counting { return Counting{l.Period, l.Calendar, l.Name()} }

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
	MaxInFlight = 1_000_000           // requests in flight: each is a member of a set
)
