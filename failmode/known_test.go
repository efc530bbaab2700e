package failmode

import (
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// Who was reset is admitted at once.
func TestWhoIsResetIsAdmittedAtOnce(t *testing.T) {
	bubble(t, new(distant), func(t *testing.T, g *Guard) {
		for _, sync := range []time.Duration{0, time.Second} {
			c := algorithms.Check{Rule: "r", Key: sync.String(), Limit: algorithms.PerMinute(2), Sync: sync}
			for i, want := range []bool{true, true, false, false, true} {
				if i == 4 {
					if err := g.Reset(t.Context(), c); err != nil {
						t.Fatal(err)
					}
				}
				if d := taken(t, g, c); d.Allowed != want {
					t.Errorf("sync %v, request %d: %+v", sync, i, d)
				}
			}
		}
	})
}

// A request with a mistake in it is not the one that asks whether a denial has ended.
func TestAnInvalidRequestHoldsNobodyBack(t *testing.T) {
	bubble(t, new(distant), func(t *testing.T, g *Guard) {
		c := algorithms.Check{Rule: "r", Key: "k", Limit: algorithms.Limit{Rate: 1, Period: time.Second, Algorithm: algorithms.FixedWindow}}
		for _, after := range []time.Duration{0, 0, 995 * time.Millisecond} {
			time.Sleep(after)
			taken(t, g, c)
		}
		time.Sleep(10 * time.Millisecond)
		if _, err := g.Take(t.Context(), c, algorithms.Check{Rule: "invalid"}); err == nil {
			t.Fatal("a check without a key was decided")
		}
		if d := taken(t, g, c); !d.Allowed {
			t.Errorf("%+v", d)
		}
	})
}
