package step

import "strings"

// A Row describes an algorithm. A new algorithm is a row of Table, a step in a Go file
// and the step's twin in a Lua file; doc.go says how. Code elsewhere does not compare
// algorithms: a difference between them is a field of Row or a method of the step.
type Row struct {
	Name     string
	Short    string // its name in keys; the digit is the form of the states, see testdata/forms.txt
	Step     step
	Lua      string // the twin's file, without .lua, in internal/script/src/steps
	MaxRate  int64  // the largest Rate
	why      string // the reason for MaxRate, for errors
	maxUsed  int64  // the most units that a window or log can hold, debts included
	Bucket   bool   // has a Burst, and its params have times to refill
	Queue    bool   // has a Delay; Burst is required
	Aligned  bool   // counts in windows aligned to the Unix epoch
	Calendar bool   // counts in the windows of a calendar; the arguments change with the time
	Summary  bool   // its state is not three numbers: scripts return a summary of it
	Log      bool   // the state has entries, in a Memory too
	Held     bool   // a charge is a request in progress: it costs 1, ends with the request, and Period is its lease

	Number uint64 // index in Table, from 1
	Code   int64  // of the twin in the scripts, from 1
}

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

// hasWindows reports whether units count in windows, whose ends free all of them.
func (r *Row) hasWindows() bool { return r.Aligned || r.Calendar }

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

// DeniedByDelay reports whether a check that does not fit was denied only because its
// slot would begin after its longest delay, if it has one: the queue had room.
func (r *Row) DeniedByDelay(bounded bool, remaining, cost int64) bool {
	return bounded && r != nil && r.Queue && remaining >= max(cost, 1)
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
