package failmode_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/algorithms/limitertest"
	"github.com/seed75154129/ratelimit/failmode"
)

// A Guard decides as the Redis in it would, also what it does not ask it about.
func TestContract(t *testing.T) {
	t.Parallel()
	limitertest.Run(t, func(t *testing.T) limitertest.Subject {
		g := &failmode.Guard{
			Limiter:   &algorithms.Redis{Client: limitertest.Redis(t), Namespace: "test", Budget: time.Minute},
			Instances: 1,
			Logger:    slog.New(slog.DiscardHandler),
		}
		t.Cleanup(func() { _ = g.Close() })
		return limitertest.Subject{Limiter: g}
	})
}
