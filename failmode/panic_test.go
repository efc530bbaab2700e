package failmode

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// raging is a limiter of the user's own around a distant store. It panics where it
// is told to.
type raging struct {
	*distant
	settle, probes atomic.Bool
	panics         atomic.Int64
}

func (s *raging) rage(now bool) {
	if now {
		s.panics.Add(1)
		panic("a limiter of the user's own")
	}
}

func (s *raging) Settle(ctx context.Context, charges ...algorithms.Charge) ([]algorithms.Result, error) {
	s.rage(s.settle.Load())
	return s.distant.Settle(ctx, charges...)
}

func (s *raging) Probe(ctx context.Context, shard int) error {
	s.rage(s.probes.Load())
	return s.distant.Probe(ctx, shard)
}

// A panic of a limiter where no request waits for it does not end the process. It
// is a failure like others, and logged with where it came from.
func TestAPanicInTheBackgroundEndsNothing(t *testing.T) {
	scene := func(name string, f func(t *testing.T, g *Guard, s *raging)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, log := &raging{distant: new(distant)}, new(logbook)
				g := &Guard{Limiter: s, Instances: 1, Logger: slog.New(slog.NewTextHandler(log, nil)), store: s}
				defer func() { _ = g.Close() }()
				f(t, g, s)
				synctest.Wait()
				if s.panics.Load() == 0 {
					t.Fatal("no panic")
				}
				if text := log.String(); strings.Count(text, `msg="ratelimit: panic in the background"`) != 1 || !strings.Contains(text, "(*raging).rage") {
					t.Errorf("log: %s", text)
				}
			})
		})
	}
	scene("where units are told", func(t *testing.T, g *Guard, s *raging) {
		c := hotCheck(10_000, time.Hour, algorithms.FixedWindow)
		taken(t, g, c)
		s.settle.Store(true)
		taken(t, g, c)
		time.Sleep(2 * c.Sync)
		s.settle.Store(false)
	})
	scene("where a probe is sent", func(t *testing.T, g *Guard, s *raging) {
		s.probes.Store(true)
		s.away.Store(&errAway)
		askFor(g, 10, check("r", 10, Local))
		time.Sleep(5 * time.Second)
		if len(down(g)) != 1 {
			t.Fatal("closed by probes that panic")
		}
		s.probes.Store(false)
		s.away.Store(nil)
		time.Sleep(time.Second)
		if len(down(g)) != 0 {
			t.Error("not closed by good probes")
		}
	})
}

// A request may be counted here, where a circuit is open, and panic in the limiter beside
// that. It is over, so it holds nothing: a place here has no lease.
func TestAPanicLeavesNothingCountedHere(t *testing.T) {
	circuits(t, func(t *testing.T, g *Guard, n *nodes, _ *logbook) {
		n.set(1, errAway, 0)
		askFor(g, 10, on(1))
		g.Limiter = rude{n}
		here := atOnce(1, "1")
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			_, _ = g.Take(t.Context(), here, on(2))
		}()
		if d := taken(t, g, here); !d.Allowed {
			t.Errorf("a request that is over holds its place: %+v", d)
		}
	})
}

// rude is a limiter that panics.
type rude struct{ algorithms.Limiter }

func (rude) Take(context.Context, ...algorithms.Check) (algorithms.Decision, error) {
	panic("a hook of the client")
}
