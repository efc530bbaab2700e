package failmode

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// slowToSettle takes a second to give back, as a store far away does.
type slowToSettle struct{ fakeRedis }

func (s *slowToSettle) Settle(ctx context.Context, charges ...algorithms.Charge) ([]algorithms.Result, error) {
	time.Sleep(time.Second)
	return s.fakeRedis.Settle(ctx, charges...)
}

// What denied requests were charged is given back in the background, so many at a
// time. The others stay charged, and the log says how many.
func TestGiveBacksThatFindNoRoomAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, s := new(logbook), new(slowToSettle)
		s.away = map[string]error{"away": errAway}
		g := guarding(t, s)
		g.Logger = slog.New(slog.NewTextHandler(log, nil))
		there := check("there", 10_000, Local)
		const requests = maxBackground + 100
		for range requests {
			if d := taken(t, g, there, check("away", 1, Closed)); d.Allowed || d.Results[0].Charged != 0 {
				t.Fatalf("%+v", d)
			}
		}
		_ = g.Close()
		lost := s.used(t, there)
		if lost == 0 || lost >= requests {
			t.Fatalf("%d of %d lost", lost, requests)
		}
		if n := g.lost.Load(); n != lost {
			t.Errorf("%d counted, %d lost", n, lost)
		}
		if text := log.String(); strings.Count(text, "not given back") != 1 {
			t.Errorf("log: %s", text)
		}
	})
}

// What of a block is given back is given back to local counting, too, with the rest
// of an older block that joined it.
func TestBlocksGoBackHereToo(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, g *Guard, c algorithms.Check){
		"Close": func(_ *testing.T, g *Guard, _ algorithms.Check) { _ = g.Close() },
		"another limit": func(t *testing.T, g *Guard, c algorithms.Check) {
			c.Limit.Rate = 5000
			_, _, left := g.leases.find(&c).spend(&c, time.Now(), 1, new(algorithms.Result))
			g.giveBack(t.Context(), *left) // by itself: what is given back meanwhile would look used to a request
		},
		"a block that comes too late": func(_ *testing.T, g *Guard, c algorithms.Check) {
			g.leases.drop(&c)
			g.refill(context.Background(), g.leases.find(&c), c, 100)
			_ = g.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := new(distant)
			bubble(t, s, func(t *testing.T, g *Guard) {
				c := leased(10_000, time.Hour, algorithms.FixedWindow)
				taken(t, g, c) // the store says how much is left
				for _, spent := range []int{30, 10} {
					g.refill(t.Context(), g.leases.find(&c), c, 50)
					synctest.Wait()
					for range spent {
						if r := taken(t, g, c).Results[0]; r.Source != algorithms.SourceLease {
							t.Fatalf("%+v", r)
						}
					}
				}
				end(t, g, c)
				synctest.Wait()
				here, there := remaining(t, &g.local, c), remaining(t, &s.Memory, c)
				if here != there {
					t.Errorf("%d left by local counting, %d in the store", here, there)
				}
			})
		})
	}
}
