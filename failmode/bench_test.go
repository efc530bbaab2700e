package failmode

import (
	"context"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
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
