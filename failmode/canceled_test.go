package failmode

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// heeding is a store of the user's own: it returns when its caller's context ends.
type heeding struct {
	algorithms.Memory
	takes time.Duration
}

func (s *heeding) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	select {
	case <-time.After(s.takes):
		return s.Memory.Take(ctx, checks...)
	case <-ctx.Done():
		return algorithms.Decision{}, context.Cause(ctx)
	}
}

// Clients that hang up, or whose deadline is near, are counted; they neither pass
// the rules that fail open nor open a circuit for everybody.
func TestClientsThatHangUpAreNoOutage(t *testing.T) {
	for name, end := range map[string]func() (context.Context, context.CancelFunc){
		"hung up": func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			return ctx, cancel
		},
		"out of time": func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), time.Millisecond)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &Guard{Limiter: &heeding{takes: 5 * time.Millisecond}, Instances: 1, Logger: slog.New(slog.DiscardHandler)}
				defer g.Close()
				allowed := 0
				for range 30 {
					ctx, cancel := end()
					d, err := g.Take(ctx, check("r", 4, Open))
					cancel()
					if err != nil {
						t.Fatal(err)
					}
					if d.Allowed {
						allowed++
					}
				}
				if down := g.Down(); len(down) > 0 {
					t.Errorf("the circuit of %v is open", down)
				}
				if allowed != 4 {
					t.Errorf("%d admitted, want 4", allowed)
				}
			})
		})
	}
}

// stuck is a store of the user's own that settles nothing before its context ends.
type stuck struct{ fakeRedis }

func (s *stuck) Settle(ctx context.Context, _ ...algorithms.Charge) ([]algorithms.Result, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func (s *stuck) Take(_ context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	d := algorithms.Decision{Results: make([]algorithms.Result, len(checks))}
	for i, c := range checks { // the last one denies, and the others are charged still
		d.Results[i] = algorithms.Result{Check: c, Source: algorithms.SourceRedis, HasRoom: true, Charged: 1}
	}
	d.Results[len(checks)-1].HasRoom, d.Results[len(checks)-1].Charged = false, 0
	return d, nil
}

func TestCloseDoesNotWaitForAStoreThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Guard{Limiter: new(stuck), Instances: 1, Logger: slog.New(slog.DiscardHandler)}
		taken(t, g, check("a", 5, Local), check("b", 5, Local))
		begun := time.Now()
		if err := g.Close(); err != nil || time.Since(begun) > time.Second {
			t.Errorf("%v after %s", err, time.Since(begun))
		}
	})
}
