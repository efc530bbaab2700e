package algorithms

import (
	"iter"
	"slices"
)

// A Metric is one number, as it was when it was read. docs/metrics.md lists all of them; a
// minor version may add some. No label has a client's key.
type Metric struct {
	Name   string   // as in Prometheus; a name that ends in _total only grows
	Labels []string // names and values in turn: "rule", "login", "outcome", "denied"
	Value  float64  // of a histogram: the sum of what was observed

	Bounds []float64 // of a histogram: the upper bounds of its buckets, in order; otherwise nil
	Counts []uint64  // how much was observed in each bucket, and in one more above the last bound
}

// Metrics yields what the Memory has counted.
func (m *Memory) Metrics() iter.Seq[Metric] {
	return func(yield func(Metric) bool) {
		stats := m.ready().Stats()
		slices.Values([]Metric{
			{Name: "ratelimit_local_keys", Value: float64(stats.Keys)},
			{Name: "ratelimit_local_evictions_total", Value: float64(stats.Evicted)},
			{Name: "ratelimit_local_overflow_total", Value: float64(stats.Overflowed)},
			{Name: "ratelimit_local_sketches", Value: float64(stats.Sketches)},
		})(yield)
	}
}
