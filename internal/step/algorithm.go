package step

import "strings"

// The reasons for each MaxRate.
const (
	forHeaders = ", as headers hold no more; got %d"
	forSquares = " for sliding_window, so that its square stays below 2^53; got %d: use a shorter period, fixed_window or a bucket"
	forEntries = " for sliding_log, which remembers each request; got %d: use sliding_window"
	forMembers = " for in_flight, which has a member for each request; got %d"
)

// Table lists the algorithms.
var Table = numbered([]Row{
	{Name: "fixed_window", Short: "fw1", Step: fixedWindow{}, Lua: "fixed_window", MaxRate: MaxUnits, why: forHeaders, maxUsed: MaxUnits, Aligned: true},
	{Name: "sliding_window", Short: "sw1", Step: slidingWindow{}, Lua: "sliding_window", MaxRate: MaxSquared, why: forSquares, maxUsed: MaxSquared, Aligned: true},
	{Name: "sliding_log", Short: "sl1", Step: slidingLog{}, Lua: "sliding_log", MaxRate: MaxLog, why: forEntries, maxUsed: MaxSquared, Summary: true, Log: true},
	{Name: "token_bucket", Short: "tb1", Step: bucket{}, Lua: "bucket", MaxRate: MaxUnits, why: forHeaders, Bucket: true},
	{Name: "leaky_bucket", Short: "lb1", Step: queue{}, Lua: "queue", MaxRate: MaxUnits, why: forHeaders, Bucket: true, Queue: true},
	{Name: "gcra", Short: "gcra1", Step: bucket{}, Lua: "bucket", MaxRate: MaxUnits, why: forHeaders, Bucket: true},
	{Name: "in_flight", Short: "if1", Step: inFlight{}, Lua: "in_flight", MaxRate: MaxInFlight, why: forMembers, Summary: true, Held: true},
	{Name: "calendar_window", Short: "cw1", Step: calendarWindow{}, Lua: "calendar_window", MaxRate: MaxUnits, why: forHeaders, maxUsed: MaxUnits, Calendar: true},
})

// numbered sets Number and Code. Rows with the same twin have the same Code.
func numbered(rows []Row) []Row {
	codes := map[string]int64{}
	for i := range rows {
		if codes[rows[i].Lua] == 0 {
			codes[rows[i].Lua] = int64(len(codes) + 1)
		}
		rows[i].Number, rows[i].Code = uint64(i+1), codes[rows[i].Lua]
	}
	return rows
}

// Lookup returns the row of an algorithm, or nil.
func Lookup(name string) *Row {
	for i := range Table {
		if Table[i].Name == name {
			return &Table[i]
		}
	}
	return nil
}

func names() string {
	all := make([]string, len(Table))
	for i := range Table {
		all[i] = Table[i].Name
	}
	return strings.Join(all, ", ")
}

// Row returns the algorithm's row, or nil.
func (l Limit) Row() *Row { return Lookup(l.Name()) }

// Quota is the number of units that an unused key can spend at once.
func (l Limit) Quota() int64 {
	if row := l.Row(); row != nil {
		return l.quotaFor(row)
	}
	return l.Rate
}
