package accuracy

import (
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// What all algorithms are measured with. Only the tables by load and by size
// have other rates.
const (
	rate   = 100
	period = time.Minute
)

// A column is limits that decide alike, so that one column of a table, or one
// row of a picture, serves them all.
type column struct {
	slug   string // in names of figures
	title  string
	detail string
	limits []algorithms.Limit
	most   int64 // units that any span of a period may serve at a cost of 1: what is promised
}

var columns = []column{
	{"fixed_window", "fixed_window", "", limits(0, algorithms.FixedWindow), 2 * rate},
	{"sliding_window", "sliding_window", "", limits(0, algorithms.SlidingWindow), 2 * rate},
	{"sliding_log", "sliding_log", "", limits(0, algorithms.SlidingLog), rate},
	{"burst_100", "token_bucket, gcra", "burst 100", limits(100, algorithms.TokenBucket, algorithms.GCRA), rate + 100},
	{"burst_20", "token_bucket, gcra", "burst 20", limits(20, algorithms.TokenBucket, algorithms.GCRA), rate + 20},
	{"leaky_bucket", "leaky_bucket", "burst 20", limits(20, algorithms.LeakyBucket), rate},
}

// Columns of which the document says more.
const (
	estimated = 1 // sliding_window
	exact     = 2 // sliding_log, which makes no errors
)

func limits(burst int64, names ...algorithms.Algorithm) []algorithms.Limit {
	all := make([]algorithms.Limit, len(names))
	for i, name := range names {
		all[i] = algorithms.Limit{Rate: rate, Period: period, Burst: burst, Algorithm: name}
	}
	return all
}
