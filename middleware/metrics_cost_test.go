package middleware

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// countingThree is a middleware with three rules and an admitted decision of it.
func countingThree(t testing.TB) (*question, *http.Request, algorithms.Decision) {
	t.Helper()
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
	request := httptest.NewRequest(http.MethodGet, "/", nil)
	d, err := m.Take(request)
	if err != nil || len(d.Results) != 3 {
		t.Fatal(d, err)
	}
	return &question{Middleware: m}, request, d
}

func TestMetricsAllocateNothing(t *testing.T) {
	q, r, d := countingThree(t)
	v := verdict{set: q.rules.Load(), decision: d}
	if n := testing.AllocsPerRun(1000, func() {
		q.took(q.clock())
		q.see(r, &v)
	}); n != 0 {
		t.Errorf("%v allocations for a decision", n)
	}
}

// What metrics cost a decision of three rules.
func BenchmarkMetrics(b *testing.B) {
	b.Run("alone", func(b *testing.B) {
		q, r, d := countingThree(b)
		v := verdict{set: q.rules.Load(), decision: d}
		b.ReportAllocs()
		for b.Loop() {
			q.took(q.clock())
			q.see(r, &v)
		}
	})
	b.Run("parallel", func(b *testing.B) {
		q, r, d := countingThree(b)
		v := verdict{set: q.rules.Load(), decision: d}
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				q.took(q.clock())
				q.see(r, &v)
			}
		})
	})
}

// What TopDenied costs a denial: of a key that it counts, and of one that pushes
// out another.
func BenchmarkTopDenied(b *testing.B) {
	keys := make([]string, 100_000)
	for i := range keys {
		keys[i] = string(rune('a'+i%26)) + httptest.DefaultRemoteAddr + string(rune(i))
	}
	for name, distinct := range map[string]int{"counted": 100, "new": len(keys)} {
		b.Run(name, func(b *testing.B) {
			var top topDenied
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				top.add(0, "rule", keys[i%distinct])
				i++
			}
		})
	}
}
