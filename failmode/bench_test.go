package failmode

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/inflight"
	"github.com/seed75154129/ratelimit/internal/redistest"
)

// instant is a store that takes no time to answer what it answered before.
type instant struct {
	algorithms.Memory
	fake
	answer algorithms.Decision
}

func (s *instant) Take(context.Context, ...algorithms.Check) (algorithms.Decision, error) {
	return s.answer, nil
}

// What a Guard adds to a decision while all is well.
func BenchmarkWell(b *testing.B) {
	checks := []algorithms.Check{
		{Rule: "per-ip", Key: "203.0.113.9", Limit: algorithms.PerMinute(1 << 20)},
		{Rule: "per-user", Key: "alice", Limit: algorithms.Limit{Rate: 1 << 20, Period: time.Minute, Algorithm: algorithms.TokenBucket}},
		{Rule: "endpoint", Key: "203.0.113.9 /items", Limit: algorithms.Limit{Rate: 1 << 20, Period: time.Minute, Algorithm: algorithms.FixedWindow}},
	}
	s := new(instant)
	for _, c := range checks {
		s.answer.Results = append(s.answer.Results, algorithms.Result{
			Check: c, Source: algorithms.SourceRedis, HasRoom: true, Charged: 1, Remaining: 1 << 20, At: time.Now(),
		})
	}
	s.answer.Allowed = true
	for name, l := range map[string]algorithms.Limiter{
		"store": s,
		"guard": &Guard{Limiter: s, Instances: 1, store: s},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if d, err := l.Take(b.Context(), checks...); err != nil || !d.Allowed {
					b.Fatal(d, err)
				}
			}
		})
	}
}

// What 10,000 long connections with a lease of 15 s and keys of their own cost a Redis:
// 2000 renewals a second, 100 in each of 20 intervals.
func BenchmarkRenewals(b *testing.B) {
	const holders, intervals, atOnce = 10_000, 20, 100
	srv := redistest.Start(b)
	client := srv.Client(b)
	s := (&algorithms.Redis{Client: client, Namespace: "shop", Budget: 5 * time.Second}).Store()
	news := make([]inflight.News, holders)
	for i := range news {
		news[i] = inflight.News{Key: fmt.Sprintf("shop:{user-%05d}:sockets:if2:15s", i), Told: "1234567890123456 12345 1 0", Lease: 15 * time.Second}
	}
	used := func() (seconds float64) {
		for line := range strings.Lines(client.Info(b.Context(), "cpu").Val()) {
			var part float64
			if name, value, _ := strings.Cut(line, ":"); name == "used_cpu_user" || name == "used_cpu_sys" {
				_, _ = fmt.Sscan(value, &part)
			}
			seconds += part
		}
		return seconds
	}
	renew := func(from, n int) {
		if failed, err := s.Tell(b.Context(), news[from:from+n]); err != nil || len(failed) > 0 {
			b.Fatal(len(failed), err)
		}
	}
	for from := 0; from < holders; from += atOnce {
		renew(from, atOnce)
	}
	scripts, cpu, i := srv.Executed(b), used(), 0
	for b.Loop() {
		renew(i*atOnce%holders, atOnce)
		i++
	}
	b.ReportMetric(float64(srv.Executed(b)-scripts)/float64(i)*intervals, "commands/s")
	b.ReportMetric((used()-cpu)/float64(i*atOnce)*1e6, "redis-µs/renewal")
	b.ReportMetric((used()-cpu)/float64(i)*intervals*100, "redis-%")
}
