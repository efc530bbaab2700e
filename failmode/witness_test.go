package failmode

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/redistest"
)

// crowd has callers ask a Guard over and over, until stop is called.
func crowd(t *testing.T, g *Guard, callers int, work func()) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			c := algorithms.Check{Rule: "crowd", Key: fmt.Sprint(i), Limit: algorithms.PerSecond(1_000_000)}
			for ctx.Err() == nil {
				if _, err := g.Take(ctx, c); err != nil {
					t.Error(err)
					return
				}
				work()
			}
		})
	}
	return func() {
		cancel()
		wg.Wait()
	}
}

func realGuard(t *testing.T, srv *redistest.Server) (*Guard, *logbook) {
	log := new(logbook)
	client := redis.NewClient(algorithms.FailFast(&redis.Options{Addr: srv.Addr}))
	t.Cleanup(func() { _ = client.Close() })
	g := &Guard{
		Limiter: &algorithms.Redis{Client: client, Namespace: "crowd"}, Instances: 1,
		Logger: slog.New(slog.NewTextHandler(log, nil)),
	}
	t.Cleanup(func() { _ = g.Close() })
	return g, log
}

// until polls for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("not in 10 s: %s", what)
		}
		time.Sleep(time.Millisecond) // between two looks at real processes
	}
}

func TestAStallOpensTheCircuitHoweverManyCall(t *testing.T) {
	srv := redistest.Start(t)
	for _, callers := range []int{8, 128, 1000} {
		t.Run(fmt.Sprint(callers), func(t *testing.T) {
			g, _ := realGuard(t, srv)
			defer crowd(t, g, callers, func() {})()
			until(t, "a first decision", func() bool {
				d, err := g.Limiter.Peek(t.Context(), check("r", 1, Local))
				return err == nil && d.Allowed
			})
			srv.Pause(t)
			begun := time.Now()
			until(t, "the circuit is open", func() bool { return len(g.Down()) == 1 })
			t.Logf("open after %s", time.Since(begun).Round(time.Millisecond))
			srv.Resume(t)
			until(t, "the circuit is closed", func() bool { return len(g.Down()) == 0 })
		})
	}
}

// A thousand callers that leave no processor to those who read Redis' answers
// make decisions late, and prove nothing about Redis.
func TestABusyProcessOpensNoCircuit(t *testing.T) {
	srv := redistest.Start(t)
	for _, callers := range []int{1000, 3000} {
		t.Run(fmt.Sprint(callers), func(t *testing.T) {
			g, log := realGuard(t, srv)
			var late atomic.Int64
			taken(t, g, check("r", 1, Local))
			g.breaker.observe(func(_ time.Duration, _ algorithms.Decision, err error) {
				if failureOf(err) == failedLate {
					late.Add(1)
				}
			})
			stop := crowd(t, g, callers, func() {
				for begun := time.Now(); time.Since(begun) < 100*time.Microsecond; {
				}
			})
			until(t, "a thousand late decisions", func() bool { return late.Load() > 1000 })
			stop()
			t.Logf("%d decisions were late", late.Load())
			if s := g.states()[0]; s.Opened > 0 {
				t.Errorf("opened %d times: %v\n%s", s.Opened, s.Err, log)
			}
		})
	}
}
