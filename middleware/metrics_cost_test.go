package middleware

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// countingThree is a middleware with three rules and an admitted decision of it.
func countingThree(t testing.TB, r prometheus.Registerer) (*Middleware, *http.Request, algorithms.Decision) {
	t.Helper()
	limit := algorithms.PerHour(1_000_000)
	m, err := New(Config{
		Limiter: new(algorithms.Memory),
		Rules: []Rule{
			{Name: "per-ip", Key: keyfunc.IP, Limit: limit},
			{Name: "per-user", Key: keyfunc.IP, Limit: algorithms.Limit{Rate: 1_000_000, Period: limit.Period, Algorithm: algorithms.TokenBucket}},
			{Name: "endpoint", Key: keyfunc.IP, Limit: algorithms.Limit{Rate: 1_000_000, Period: limit.Period, Algorithm: algorithms.FixedWindow}},
		},
		Registerer: r,
	})
	if err != nil {
		t.Fatal(err)
	}
	request := httptest.NewRequest(http.MethodGet, "/", nil)
	d, err := m.Take(request)
	if err != nil || len(d.Results) != 3 {
		t.Fatal(d, err)
	}
	return m, request, d
}

func TestMetricsAllocateNothing(t *testing.T) {
	with, r, d := countingThree(t, prometheus.NewRegistry())
	v := verdict{set: with.rules.Load(), decision: d}
	if n := testing.AllocsPerRun(1000, func() {
		with.metrics.decided(with.metrics.now())
		with.see(r, &v)
	}); n != 0 {
		t.Errorf("%v allocations for a decision", n)
	}
}

// What metrics cost a decision of three rules: see with a registry, against see
// without one.
func BenchmarkMetrics(b *testing.B) {
	for name, registry := range map[string]prometheus.Registerer{"with": prometheus.NewRegistry(), "without": nil} {
		b.Run(name, func(b *testing.B) {
			m, r, d := countingThree(b, registry)
			v := verdict{set: m.rules.Load(), decision: d}
			b.ReportAllocs()
			for b.Loop() {
				m.metrics.decided(m.metrics.now())
				m.see(r, &v)
			}
		})
		b.Run(name+"/parallel", func(b *testing.B) {
			m, r, d := countingThree(b, registry)
			v := verdict{set: m.rules.Load(), decision: d}
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					m.metrics.decided(m.metrics.now())
					m.see(r, &v)
				}
			})
		})
	}
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
