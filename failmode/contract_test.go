package failmode_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/algorithms/limitertest"
	"github.com/seed75154129/ratelimit/failmode"
)

// oneOf returns a Guard that is one of so many instances.
func oneOf(t *testing.T, instances int) *failmode.Guard {
	g := &failmode.Guard{
		Limiter:   &algorithms.Redis{Client: limitertest.Redis(t), Namespace: "test", Budget: time.Minute},
		Instances: instances,
		Logger:    slog.New(slog.DiscardHandler),
	}
	t.Cleanup(func() { _ = g.Close() })
	return g
}

// A Guard decides as the Redis in it would, also what it does not ask it about.
func TestContract(t *testing.T) {
	t.Parallel()
	limitertest.Run(t, func(t *testing.T) limitertest.Subject { return limitertest.Subject{Limiter: oneOf(t, 1)} })
}

// Until a block is granted, a lease is decided as the contract says, exactly: here
// so many instances share each limit that none is. With blocks, what is left is an
// estimate, and what other blocks hold is not admitted.
func TestContractOfLeases(t *testing.T) {
	t.Parallel()
	limitertest.Run(t, func(t *testing.T) limitertest.Subject {
		return limitertest.Subject{Limiter: leasing{oneOf(t, 1_000_000_000)}}
	})
}

// leasing makes every check that may be one a lease, and does not show it.
type leasing struct{ algorithms.Limiter }

func (l leasing) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	all := make([]algorithms.Check, len(checks))
	for i, c := range checks {
		if all[i] = c; !c.NoCache && c.AtLeast == 0 && c.Ban == (algorithms.Ban{}) {
			switch c.Limit.Algorithm {
			case algorithms.FixedWindow, algorithms.SlidingWindow:
				all[i].Lease = !c.Limit.Soft
			}
		}
	}
	d, err := l.Limiter.Take(ctx, all...)
	for i := range d.Results {
		d.Results[i].Check.Lease = false
	}
	return d, err
}
