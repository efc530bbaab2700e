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

// Who was reset is admitted at once.
func TestWhoIsResetIsAdmittedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &failmode.Guard{
			Limiter:   &algorithms.Redis{Client: limitertest.Redis(t), Namespace: "test"},
			Instances: 1, Logger: slog.New(slog.DiscardHandler),
		}
		defer g.Close()
		for _, sync := range []time.Duration{0, time.Second} {
			c := algorithms.Check{Rule: "r", Key: sync.String(), Limit: algorithms.PerMinute(2), Sync: sync}
			for i, want := range []bool{true, true, false, false, true} {
				if i == 4 {
					if err := g.Reset(t.Context(), c); err != nil {
						t.Fatal(err)
					}
				}
				if d, err := g.Take(t.Context(), c); err != nil || d.Allowed != want {
					t.Errorf("sync %v, request %d: %+v, %v", sync, i, d, err)
				}
			}
		}
	})
}

// A request with a mistake in it is not the one that asks whether a denial has ended.
func TestAnInvalidRequestHoldsNobodyBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &failmode.Guard{
			Limiter:   &algorithms.Redis{Client: limitertest.Redis(t), Namespace: "test"},
			Instances: 1, Logger: slog.New(slog.DiscardHandler),
		}
		defer g.Close()
		c := algorithms.Check{Rule: "r", Key: "k", Limit: algorithms.Limit{Rate: 1, Period: time.Second, Algorithm: algorithms.FixedWindow}}
		for _, after := range []time.Duration{0, 0, 995 * time.Millisecond} {
			time.Sleep(after)
			if _, err := g.Take(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Millisecond)
		if _, err := g.Take(t.Context(), c, algorithms.Check{Rule: "invalid"}); err == nil {
			t.Fatal("a check without a key was decided")
		}
		if d, err := g.Take(t.Context(), c); err != nil || !d.Allowed {
			t.Errorf("%+v, %v", d, err)
		}
	})
}
