package middleware

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const us, ms = time.Microsecond, time.Millisecond

var (
	latencies = []time.Duration{50 * us, 100 * us, 250 * us, 500 * us, ms, 2500 * us, 5 * ms,
		10 * ms, 25 * ms, 50 * ms, 100 * ms, 250 * ms, 500 * ms, time.Second}
	delays = []time.Duration{ms, 5 * ms, 10 * ms, 25 * ms, 50 * ms, 100 * ms, 250 * ms, 500 * ms,
		time.Second, 2500 * ms, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute}
)

// A histogram counts durations. It is cheaper than Prometheus' own: its count is
// the sum of its buckets, and it adds nanoseconds instead of exchanging floats.
type histogram struct {
	bounds []time.Duration
	counts []atomic.Uint64 // by bound, and one more for longer durations
	sum    atomic.Int64    // ns
}

func newHistogram(bounds []time.Duration) *histogram {
	return &histogram{bounds: bounds, counts: make([]atomic.Uint64, len(bounds)+1)}
}

func (h *histogram) observe(d time.Duration) {
	i := 0
	for i < len(h.bounds) && d > h.bounds[i] {
		i++
	}
	h.counts[i].Add(1)
	h.sum.Add(int64(d))
}

func (h *histogram) metric(desc *prometheus.Desc) prometheus.Metric {
	var count uint64
	buckets := make(map[float64]uint64, len(h.bounds))
	for i := range h.counts {
		count += h.counts[i].Load()
		if i < len(h.bounds) {
			buckets[h.bounds[i].Seconds()] = count
		}
	}
	return prometheus.MustNewConstHistogram(desc, count, time.Duration(h.sum.Load()).Seconds(), buckets)
}
