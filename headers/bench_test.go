package headers_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/headers"
)

var writers = []struct {
	name  string
	write headers.Writer
}{
	{"XRateLimit", headers.XRateLimit},
	{"IETFDraft11", headers.IETFDraft11},
	{"both", headers.All(headers.XRateLimit, headers.IETFDraft11)},
}

func threeRules() algorithms.Decision {
	d := decision(
		result("per-ip", algorithms.PerMinute(200), 150, time.Minute),
		result("per-user", algorithms.Limit{Rate: 100, Period: time.Minute, Burst: 150, Algorithm: algorithms.TokenBucket}, 70, 48*time.Second),
		result("login", algorithms.PerMinute(5), 3, 42*time.Second))
	d.Results[0].Check.Key, d.Results[1].Check.Key, d.Results[2].Check.Key = "203.0.113.9", "alice", "203.0.113.9"
	return d
}

func TestWritersAllocateLittle(t *testing.T) {
	admitted := threeRules()
	over := threeRules()
	over.Allowed, over.Results[2] = false, denied(over.Results[2], 5*time.Second)
	for _, w := range writers {
		for name, d := range map[string]algorithms.Decision{"admitted": admitted, "denied": over} {
			if n := testing.AllocsPerRun(100, func() { w.write(http.Header{}, d) }); n > 6 {
				t.Errorf("%s, %s: %g allocations, want at most 6", w.name, name, n)
			}
		}
	}
}

func BenchmarkWriters(b *testing.B) {
	d := threeRules()
	for _, w := range writers {
		b.Run(w.name, func(b *testing.B) {
			h := http.Header{}
			b.ReportAllocs()
			for b.Loop() {
				clear(h)
				w.write(h, d)
			}
		})
	}
	b.Run("IETFDraft11, behind another", func(b *testing.B) {
		h := http.Header{}
		headers.IETFDraft11(h, d)
		b.ReportAllocs()
		for b.Loop() {
			headers.IETFDraft11(h, d)
		}
	})
}
