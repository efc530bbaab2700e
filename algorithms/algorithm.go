package algorithms

import "strings"

// An algorithm is a row of the table. A new one is a row here, its step in a Go
// file and the step's twin in a Lua file; docs/architecture.md says how. Nothing
// else compares algorithms: whatever the other files need to know about one is a
// column here or a method of its step.
type algorithm struct {
	name    Algorithm
	short   string // in keys; its digit is the form of the states there, see testdata/forms.txt
	step    step
	lua     string // the step's twin: the function of this name, in lua/<name>.lua
	maxRate int64  // the largest Rate
	why     string // it is no larger
	maxUsed int64  // units that a window or log can hold, with what is owed
	bucket  bool   // has a Burst, and its params have times to refill
	queue   bool   // has a Delay; Burst is required
	aligned bool   // counts in windows aligned to the Unix epoch
	summary bool   // the state stays in Redis; scripts return a summary of it

	row  uint64 // in the table, from 1
	code int64  // of the twin in the scripts, from 1
}

// Why rates are no larger.
const (
	forHeaders = ", as headers hold no more; got %d"
	forSquares = " for sliding_window, so that its square stays below 2^53; got %d: use a shorter period, fixed_window or a bucket"
	forEntries = " for sliding_log, which remembers each request; got %d: use sliding_window"
)

var table = numbered([]algorithm{
	{name: FixedWindow, short: "fw1", step: fixedWindow{}, lua: "fixed_window", maxRate: maxUnits, why: forHeaders, maxUsed: maxUnits, aligned: true},
	{name: SlidingWindow, short: "sw1", step: slidingWindow{}, lua: "sliding_window", maxRate: maxSquared, why: forSquares, maxUsed: maxSquared, aligned: true},
	{name: SlidingLog, short: "sl1", step: slidingLog{}, lua: "sliding_log", maxRate: maxLog, why: forEntries, maxUsed: maxSquared, summary: true},
	{name: TokenBucket, short: "tb1", step: bucket{}, lua: "bucket", maxRate: maxUnits, why: forHeaders, bucket: true},
	{name: LeakyBucket, short: "lb1", step: queue{}, lua: "queue", maxRate: maxUnits, why: forHeaders, bucket: true, queue: true},
	{name: GCRA, short: "gcra1", step: bucket{}, lua: "bucket", maxRate: maxUnits, why: forHeaders, bucket: true},
})

// numbered gives rows their numbers and the codes of their twins: the first row's is 1, and rows
// with the same twin have the same code.
func numbered(rows []algorithm) []algorithm {
	codes := map[string]int64{}
	for i := range rows {
		if codes[rows[i].lua] == 0 {
			codes[rows[i].lua] = int64(len(codes) + 1)
		}
		rows[i].row, rows[i].code = uint64(i+1), codes[rows[i].lua]
	}
	return rows
}

// lookup finds an algorithm's row, or nil.
func lookup(name Algorithm) *algorithm {
	for i := range table {
		if table[i].name == name {
			return &table[i]
		}
	}
	return nil
}

func names() string {
	all := make([]string, len(table))
	for i := range table {
		all[i] = string(table[i].name)
	}
	return strings.Join(all, ", ")
}
