package failmode

import (
	"iter"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/histogram"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// Metrics yields what the Guard has counted: of the store, its circuits, and of what
// is counted in this process.
func (g *Guard) Metrics() iter.Seq[algorithms.Metric] {
	return func(yield func(algorithms.Metric) bool) {
		slices.Values(g.metrics())(yield)
	}
}

func (g *Guard) metrics() []algorithms.Metric {
	var circuits []*circuit
	if g.ready(); g.invalid == nil {
		circuits = g.breaker.all()
	}
	var open, opened int64
	for _, c := range circuits {
		isOpen, times := c.history()
		opened += times
		if isOpen {
			open++
		}
	}
	metrics := []algorithms.Metric{
		{Name: "ratelimit_breaker_shards", Value: float64(len(circuits))},
		{Name: "ratelimit_breaker_open_shards", Value: float64(open)},
		{Name: "ratelimit_breaker_transitions_total", Labels: []string{"to", "open"}, Value: float64(opened)},
		{Name: "ratelimit_breaker_transitions_total", Labels: []string{"to", "closed"}, Value: float64(opened - open)},
		{Name: "ratelimit_instances", Value: float64(g.instances())},
	}
	metrics = g.breaker.calls.appendTo(metrics)
	metrics = append(metrics,
		algorithms.Metric{Name: "ratelimit_releases_dropped_total", Value: float64(g.inFlight.Dropped.Load())},
		algorithms.Metric{Name: "ratelimit_renewals_failed_total", Value: float64(g.inFlight.Failed.Load())})
	return slices.AppendSeq(metrics, g.local.Metrics())
}

// errorClasses are the values of the label class. All are there from the start.
var errorClasses = [...]transport.ErrorClass{
	transport.ClassUnreachable, transport.ClassBusy, transport.ClassUnavailable,
	transport.ClassMoved, transport.ClassRefused, transport.ClassMisused, transport.ClassUnknown,
}

// calls are what became of the calls to a store, and of the probes that failed.
type calls struct {
	took   *histogram.Histogram
	failed [len(errorClasses)]atomic.Uint64
}

// count counts a call that has just returned.
func (c *calls) count(begun time.Time, d algorithms.Decision, err error) {
	c.took.Observe(time.Since(begun))
	c.fail(err)
	for i := range d.Results {
		c.fail(d.Results[i].Err)
	}
}

func (c *calls) fail(err error) {
	if err != nil {
		if i := slices.Index(errorClasses[:], transport.ClassOf(err)); i >= 0 {
			c.failed[i].Add(1)
		}
	}
}

func (c *calls) appendTo(metrics []algorithms.Metric) []algorithms.Metric {
	metrics = append(metrics, c.took.Metric("ratelimit_store_duration_seconds"))
	for i, class := range errorClasses {
		metrics = append(metrics, algorithms.Metric{
			Name: "ratelimit_store_errors_total", Labels: []string{"class", string(class)}, Value: float64(c.failed[i].Load()),
		})
	}
	return metrics
}
