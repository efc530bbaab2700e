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

// leasing makes every check that may be one a lease, and does not show it.
type leasing struct{ algorithms.Limiter }

func (l leasing) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	all := make([]algorithms.Check, len(checks))
	for i, c := range checks {
		if all[i] = c; !c.NoCache && c.Ban == (algorithms.Ban{}) {
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

// Until a block is granted, a lease is decided as the contract says, exactly: here
// so many instances share each limit that none is. With blocks, what is left is an
// estimate, and what other blocks hold is not admitted.
func TestContractOfLeases(t *testing.T) {
	t.Parallel()
	limitertest.Run(t, func(t *testing.T) limitertest.Subject {
		g := &failmode.Guard{
			Limiter:   &algorithms.Redis{Client: limitertest.Redis(t), Namespace: "test", Budget: time.Minute},
			Instances: 1_000_000,
			Logger:    slog.New(slog.DiscardHandler),
		}
		t.Cleanup(func() { _ = g.Close() })
		return limitertest.Subject{Limiter: leasing{g}}
	})
}
