package algorithms_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/algorithms/limitertest"
	"github.com/seed75154129/ratelimit/failmode"
)

// Whatever requests take and settle, in any order, each crossing of a fixed window is
// reported by exactly one result.
func TestEachCrossingIsReportedOnce(t *testing.T) {
	for name, limiter := range map[string]func(*testing.T) algorithms.Limiter{
		"memory": func(*testing.T) algorithms.Limiter { return new(algorithms.Memory) },
		"redis": func(t *testing.T) algorithms.Limiter {
			return &algorithms.Redis{Client: limitertest.Redis(t), Namespace: "test"}
		},
		"guard": func(t *testing.T) algorithms.Limiter {
			g := &failmode.Guard{Limiter: &algorithms.Redis{Client: limitertest.Redis(t), Namespace: "test"}}
			t.Cleanup(func() { _ = g.Close() })
			return g
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limiter(t)
				random := rand.New(rand.NewPCG(1, 2))
				check := algorithms.Check{Rule: "r", Key: "k", Limit: algorithms.Limit{Rate: 1000, Period: time.Hour, Algorithm: algorithms.FixedWindow}, NoCache: true}
				levels := []float64{0.1, 50, 80, 100, 105}
				want, got := make([]int, len(levels)), make([]int, len(levels))
				var open []algorithms.Result
				used := int64(0)
				see := func(r algorithms.Result) {
					before := used
					used = 1000 - r.Remaining
					for i, percent := range levels {
						if at := percent * 10; float64(before) < at && at <= float64(used) {
							want[i]++
						}
						if r.Crossed(percent) {
							got[i]++
						}
					}
				}
				for range 600 {
					if len(open) < 20 && random.IntN(2) == 0 {
						check.Cost = 1 + random.Int64N(100)
						d, err := l.Take(t.Context(), check)
						if err != nil {
							t.Fatal(err)
						}
						if see(d.Results[0]); d.Allowed {
							open = append(open, d.Results[0])
						}
					} else if len(open) > 0 {
						i := random.IntN(len(open))
						results, err := l.Settle(t.Context(), algorithms.Charge{Result: open[i], Cost: random.Int64N(250)})
						if err != nil {
							t.Fatal(err)
						}
						see(results[0])
						open[i] = open[len(open)-1]
						open = open[:len(open)-1]
					}
				}
				for i := range levels {
					if got[i] != want[i] || want[i] == 0 {
						t.Errorf("%v %%: %d results have crossed it, want %d", levels[i], got[i], want[i])
					}
				}
			})
		})
	}
}

// What changes no count, or that of this process alone, crosses nothing.
func TestWhatCrossesNothing(t *testing.T) {
	memory := new(algorithms.Memory)
	check := algorithms.Check{Rule: "r", Key: "k", Limit: algorithms.PerHour(10), Cost: 8}
	first, _ := memory.Take(t.Context(), check)
	r := first.Results[0]
	if !r.Crossed(80) || !r.Crossed(10) || r.Crossed(81) || r.Crossed(0) || r.Crossed(-5) {
		t.Errorf("8 of 10: %+v", r)
	}
	same, _ := memory.Settle(t.Context(), algorithms.Charge{Result: r, Cost: 8})
	refunded, _ := memory.Settle(t.Context(), algorithms.Charge{Result: r})
	again, _ := memory.Settle(t.Context(), algorithms.Charge{Result: refunded[0], Cost: 8})
	denied, _ := memory.Take(t.Context(), algorithms.Check{Rule: "r", Key: "k", Limit: check.Limit, Cost: 11})
	peeked, _ := memory.Peek(t.Context(), check)
	for name, r := range map[string]algorithms.Result{
		"settled at the same cost": same[0], "refunded": refunded[0], "settled after the refund": again[0], "denied": denied.Results[0], "peeked": peeked.Results[0],
	} {
		if r.Crossed(80) {
			t.Errorf("%s: %+v", name, r)
		}
	}
	for _, source := range []algorithms.Source{algorithms.SourceFallback, algorithms.SourceFailOpen} {
		if r.Source = source; r.Crossed(80) {
			t.Error(source)
		}
	}
}
