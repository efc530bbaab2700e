package middleware

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// The metrics of a decision by three rules take no memory.
func TestMetricsAllocateNothing(t *testing.T) {
	limit := algorithms.PerHour(1_000_000)
	m, err := New(Config{
		Limiter: new(algorithms.Memory),
		Rules: []Rule{
			{Name: "per-ip", Key: keyfunc.IP, Limit: limit},
			{Name: "per-user", Key: keyfunc.IP, Limit: algorithms.Limit{Rate: 1_000_000, Period: limit.Period, Algorithm: algorithms.TokenBucket}},
			{Name: "endpoint", Key: keyfunc.IP, Limit: algorithms.Limit{Rate: 1_000_000, Period: limit.Period, Algorithm: algorithms.FixedWindow}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	d, err := m.Take(r)
	if err != nil || len(d.Results) != 3 {
		t.Fatal(d, err)
	}
	if n := testing.AllocsPerRun(1000, func() {
		m.decisions.Observe(time.Since(m.start))
		m.record(r, m.rules.Load(), &d, m.now())
	}); n != 0 {
		t.Errorf("%v allocations for a decision", n)
	}
}
