package middleware

import (
	"iter"
	"slices"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

const ms = time.Millisecond

// delays are the bounds for the time that requests wait for their turn.
var delays = []time.Duration{ms, 5 * ms, 10 * ms, 25 * ms, 50 * ms, 100 * ms, 250 * ms, 500 * ms,
	time.Second, 2500 * ms, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute}

// Metrics yields what the Middleware has counted. Its Limiter has metrics of its own.
func (m *Middleware) Metrics() iter.Seq[algorithms.Metric] {
	m.mustBeMade()
	return func(yield func(algorithms.Metric) bool) {
		slices.Values(m.metrics())(yield)
	}
}

// metrics takes no lock that a request waits for.
func (m *Middleware) metrics() []algorithms.Metric {
	set, failing := m.rules.Load(), 0.0
	if m.failures.current() != nil {
		failing = 1
	}
	all := []algorithms.Metric{
		m.decisions.Metric("ratelimit_decision_duration_seconds"),
		{Name: "ratelimit_queue_waiting", Value: float64(m.room.count())},
		m.delays.Metric("ratelimit_queue_delay_seconds"),
		{Name: "ratelimit_rules", Value: float64(len(set.rules))},
		{Name: "ratelimit_rules_generation", Value: float64(set.generation)},
		{Name: "ratelimit_rules_errors_total", Value: float64(m.rejected.Load())},
		{Name: "ratelimit_rules_failing", Value: failing},
	}
	from := expectedOf(m.limiter)
	for i := range set.rules {
		all = set.watches[i].appendTo(all, &set.rules[i], from)
	}
	return all
}

// clock reads the monotonic clock, which costs half of time.Now.
func (q *question) clock() time.Duration {
	if q.peeks {
		return 0
	}
	return time.Since(q.start)
}

// took measures a decision that began at a reading of clock.
func (q *question) took(begun time.Duration) {
	if !q.peeks {
		q.decisions.Observe(q.clock() - begun)
	}
}
