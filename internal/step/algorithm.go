package step

import "strings"

// The reasons for each MaxRate.
const (
	forHeaders = ", as headers hold no more; got %d"
	forSquares = " for sliding_window, so that its square stays below 2^53; got %d: use a shorter period, fixed_window or a bucket"
	forEntries = " for sliding_log, which remembers each request; got %d: use sliding_window"
	forPlaces  = " for in_flight; got %d"
)

// The numbers of the algorithms.
const (
	FixedWindow = 1 + iota
	SlidingWindow
	SlidingLog
	TokenBucket
	LeakyBucket
	GCRA
	InFlight
	CalendarWindow
)

// Table lists the algorithms by their numbers.
var Table = []Row{
	{Number: FixedWindow, Name: "fixed_window", Short: "fw1", Step: fixedWindow{}, Code: 1, MaxRate: MaxUnits, why: forHeaders, maxUsed: MaxUnits, Aligned: true, Copied: true},
	{Number: SlidingWindow, Name: "sliding_window", Short: "sw1", Step: slidingWindow{}, Code: 2, MaxRate: MaxSquared, why: forSquares, maxUsed: MaxSquared, Aligned: true, Copied: true},
	{Number: SlidingLog, Name: "sliding_log", Short: "sl1", Step: slidingLog{}, Code: 3, MaxRate: MaxLog, why: forEntries, maxUsed: MaxSquared, Summary: true, Log: true},
	{Number: TokenBucket, Name: "token_bucket", Short: "tb1", Step: bucket{}, Code: 4, MaxRate: MaxUnits, why: forHeaders, Bucket: true, Copied: true},
	{Number: LeakyBucket, Name: "leaky_bucket", Short: "lb1", Step: queue{}, Code: 5, MaxRate: MaxUnits, why: forHeaders, Bucket: true, Queue: true},
	{Number: GCRA, Name: "gcra", Short: "gcra1", Step: bucket{}, Code: 4, MaxRate: MaxUnits, why: forHeaders, Bucket: true, Copied: true},
	{Number: InFlight, Name: "in_flight", Short: "if2", Step: inFlight{}, Code: 6, MaxRate: MaxInFlight, why: forPlaces, Summary: true, Held: true},
	{Number: CalendarWindow, Name: "calendar_window", Short: "cw1", Step: calendarWindow{}, Code: 7, MaxRate: MaxUnits, why: forHeaders, maxUsed: MaxUnits, Calendar: true, Copied: true},
}

// Lookup returns the row of an algorithm by its number, or nil.
func Lookup(number uint16) *Row {
	if number == 0 || int(number) > len(Table) {
		return nil
	}
	return &Table[number-1]
}

// Names lists the names of the algorithms.
func Names() string {
	all := make([]string, len(Table))
	for i := range Table {
		all[i] = Table[i].Name
	}
	return strings.Join(all, ", ")
}

// Row returns the algorithm's row, or nil.
func (l Limit) Row() *Row { return Lookup(l.Number()) }

// Quota is the number of units that an unused key can spend at once.
func (l Limit) Quota() int64 {
	if row := l.Row(); row != nil {
		return l.quotaFor(row)
	}
	return l.Rate
}
