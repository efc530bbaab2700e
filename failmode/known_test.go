package failmode_test

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/algorithms/limitertest"
	"github.com/seed75154129/ratelimit/failmode"
)

// A request with a mistake in it is not the one that asks whether a denial has ended.
func TestAnInvalidRequestHoldsNobodyBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &failmode.Guard{
			Limiter:   &algorithms.Redis{Client: limitertest.Redis(t), Namespace: "test"},
			Instances: 1, Logger: slog.New(slog.DiscardHandler),
		}
		defer g.Close()
		c := algorithms.Check{Rule: "r", Key: "k", Limit: algorithms.PerSecond(1)}
		for _, want := range []bool{true, false} {
			if d, err := g.Take(t.Context(), c); err != nil || d.Allowed != want {
				t.Fatalf("%+v, %v", d, err)
			}
		}
		time.Sleep(time.Second)
		if _, err := g.Take(t.Context(), c, algorithms.Check{Rule: "invalid"}); err == nil {
			t.Fatal("a check without a key was decided")
		}
		if d, err := g.Take(t.Context(), c); err != nil || !d.Allowed {
			t.Errorf("%+v, %v", d, err)
		}
	})
}
