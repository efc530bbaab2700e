package failmode_test

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/algorithms/limitertest"
	"github.com/seed75154129/ratelimit/failmode"
)

// A Guard decides as the Redis in it would, also what it does not ask it about.
func TestContract(t *testing.T) {
	t.Parallel()
	limitertest.Run(t, func(t *testing.T) limitertest.Subject { return limitertest.Subject{Limiter: guarding(t, 1)} })
}

// So it does with leases until a block is granted: here so many instances share each limit
// that none is. With blocks, what is left is an estimate, and what other blocks hold is not
// admitted.
func TestContractOfLeases(t *testing.T) {
	t.Parallel()
	limitertest.Run(t, func(t *testing.T) limitertest.Subject {
		return limitertest.Subject{Limiter: &leasing{Limiter: guarding(t, 1_000_000_000)}}
	})
}

// guarding is a Guard around a Redis for tests.
func guarding(t *testing.T, instances int) *failmode.Guard {
	t.Helper()
	g := &failmode.Guard{
		Limiter:   &algorithms.Redis{Client: limitertest.Redis(t), Namespace: "test", Budget: time.Minute},
		Instances: instances,
		Logger:    slog.New(slog.DiscardHandler),
	}
	t.Cleanup(func() { _ = g.Close() })
	return g
}

// leasing makes the checks of every second request leases, where they may be, and does not
// show it.
type leasing struct {
	algorithms.Limiter
	requests atomic.Int64
}

func (l *leasing) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	if l.requests.Add(1)%2 == 0 {
		return l.Limiter.Take(ctx, checks...)
	}
	all := slices.Clone(checks)
	for i, c := range checks {
		if c.Ban == (algorithms.Ban{}) {
			switch c.Limit.Algorithm {
			case algorithms.FixedWindow, algorithms.SlidingWindow:
				all[i].Lease = true
			}
		}
	}
	d, err := l.Limiter.Take(ctx, all...)
	for i := range d.Results {
		d.Results[i].Check.Lease = false
	}
	return d, err
}
