package outages

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/internal/redistest"
)

// guardOf returns a Guard over a server, and what it logs.
func guardOf(t *testing.T, srv *redistest.Server) (*failmode.Guard, *log) {
	t.Helper()
	lines := new(log)
	g := &failmode.Guard{
		Limiter:   &algorithms.Redis{Client: failFast(t, srv.Addr), Namespace: namespace},
		Instances: 1,
		Logger:    slog.New(slog.NewTextHandler(lines, nil)),
	}
	t.Cleanup(func() { _ = g.Close() })
	if err := g.Warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	return g, lines
}

// flooded is the check of a flood.
var flooded = algorithms.Check{Rule: "per-ip", Key: "the flood's", Limit: localLimit, Fail: failmode.Open}

// flood has callers ask over and over, until stop is called. think is what each
// does between two requests.
func flood(t *testing.T, l algorithms.Limiter, check algorithms.Check, callers int, seen func(algorithms.Decision), think func()) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for ctx.Err() == nil {
				d, err := l.Take(ctx, check)
				if err != nil {
					t.Error(err)
					return
				}
				seen(d)
				think()
			}
		})
	}
	return func() {
		cancel()
		all.Wait()
	}
}

// However many call, a server that hangs is noticed within two budgets and a bit.
func TestAStallIsNoticedHoweverManyCall(t *testing.T) {
	onlyAll(t)
	srv := redistest.Start(t)
	for _, callers := range []int{8, 128, 1000} {
		t.Run(fmt.Sprint(callers, " callers"), func(t *testing.T) {
			g, _ := guardOf(t, srv)
			asks := flooded
			asks.Limit.Rate = 90_000_000 // what is denied here asks nobody, and notices nothing
			defer flood(t, g, asks, callers, func(algorithms.Decision) {}, func() {})()
			sleepUntil(t.Context(), time.Now().Add(500*time.Millisecond))
			begun := time.Now()
			srv.Pause(t)
			eventually(t, func() error {
				if openShards(g) == 0 {
					return fmt.Errorf("no circuit is open")
				}
				return nil
			})
			t.Logf("noticed after %s", time.Since(begun).Round(time.Millisecond))
			srv.Resume(t)
			eventually(t, func() error {
				if n := openShards(g); n > 0 {
					return fmt.Errorf("%d are still open", n)
				}
				return nil
			})
		})
	}
}

// A client with many connections makes decisions late, and that proves nothing
// about Redis: no circuit opens, what it may do stays its limit and this process'
// share, and others are served.
func TestAFloodOpensNoCircuit(t *testing.T) {
	onlyAll(t)
	srv := redistest.Start(t)
	for _, callers := range []int{60, 1000, 3000} {
		t.Run(fmt.Sprint(callers, " callers"), func(t *testing.T) {
			if err := srv.Client(t).FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			g, lines := guardOf(t, srv)
			var admitted, here, total atomic.Int64
			stop := flood(t, g, flooded, callers, func(d algorithms.Decision) {
				total.Add(1)
				if d.Allowed {
					admitted.Add(1)
				}
				if d.Results[0].Source == algorithms.SourceFallback {
					here.Add(1)
				}
			}, func() {
				for begun := time.Now(); time.Since(begun) < 100*time.Microsecond; { // a handler's work
				}
			})
			refused := 0
			for i := range 20 {
				login := algorithms.Check{Rule: "login", Key: fmt.Sprint("somebody else ", i), Limit: localLimit, Fail: failmode.Closed}
				if d, err := g.Take(t.Context(), login); err != nil || !d.Allowed {
					refused++
				}
				sleepUntil(t.Context(), time.Now().Add(50*time.Millisecond))
			}
			stop()
			t.Logf("%d requests, %d admitted, %d decided here", total.Load(), admitted.Load(), here.Load())
			if n := admitted.Load(); n > 2*limit {
				t.Errorf("%d admitted, want at most the limit and the share of the only instance", n)
			}
			if refused > 0 {
				t.Errorf("%d of 20 logins from elsewhere were refused", refused)
			}
			if text := lines.String(); strings.Contains(text, "circuit open") {
				t.Errorf("a circuit opened:\n%s", text)
			}
		})
	}
}
