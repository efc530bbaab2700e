package failmode

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/background"
)

// What denied requests were charged is given back in the background, so many at a
// time. The others stay charged, and the log says how many.
func TestGiveBacksThatFindNoRoomAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, s := new(logbook), &distant{settles: time.Second, lost: map[string]error{"away": errAway}}
		g := guarding(t, s)
		g.Logger = slog.New(slog.NewTextHandler(log, nil))
		there := check("there", 10_000, Local)
		const requests = background.Max + 100
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
		if text := log.String(); strings.Count(text, "not refunded") != 1 {
			t.Errorf("log: %s", text)
		}
	})
}

// Close gives back all blocks, however many there are.
func TestCloseGivesBackAllBlocks(t *testing.T) {
	log, s := new(logbook), &distant{back: time.Millisecond}
	bubble(t, s, func(t *testing.T, g *Guard) {
		g.Logger = slog.New(slog.NewTextHandler(log, nil))
		const keys, spent = 2 * background.Max, 3
		checks := make([]algorithms.Check, keys)
		for i := range checks {
			checks[i] = leased(10_000, time.Hour, algorithms.FixedWindow)
			checks[i].Key = fmt.Sprint(i)
			taken(t, g, checks[i])
			g.refill(t.Context(), g.leases.Find(&checks[i]), checks[i], 50)
			synctest.Wait()
			time.Sleep(s.back)
			for range spent - 1 {
				taken(t, g, checks[i])
			}
		}
		_ = g.Close()
		for i := range checks {
			if n := 10_000 - remaining(t, &s.Memory, checks[i]); n != spent {
				t.Fatalf("key %d: %d counted, %d spent; log: %s", i, n, spent, log)
			}
		}
	})
}

// Two processes that close while requests come and blocks are under way, to a store
// that takes longer than they ask for, leave counted what they have admitted.
func TestClosingUnderLoadLosesNoUnit(t *testing.T) {
	for _, s := range []*distant{{}, {there: 2 * time.Millisecond, back: time.Millisecond}, {there: 200 * time.Millisecond}, {back: 200 * time.Millisecond}} {
		t.Run(fmt.Sprint(s.there, " there, ", s.back, " back"), func(t *testing.T) {
			bubble(t, s, func(t *testing.T, g *Guard) {
				const keys = 10
				checks, admitted := make([]algorithms.Check, keys), make([]atomic.Int64, keys)
				for i := range checks {
					checks[i] = leased(1_000_000, 24*time.Hour, algorithms.FixedWindow)
					checks[i].Key = fmt.Sprint(i)
				}
				var all sync.WaitGroup
				var fromBlocks atomic.Int64
				closing := time.Now().Add(500 * time.Millisecond)
				end := closing.Add(500 * time.Millisecond)
				for i, g := range []*Guard{g, join(s, 2)} {
					for j := range 4 * keys {
						all.Go(func() {
							for time.Now().Before(end) {
								r := taken(t, g, checks[j%keys]).Results[0]
								if admitted[j%keys].Add(r.Charged); r.Source == algorithms.SourceLease {
									fromBlocks.Add(1)
								}
								time.Sleep(time.Duration(1+(i+j)%3) * time.Millisecond)
							}
						})
					}
					all.Go(func() {
						time.Sleep(time.Until(closing))
						_ = g.Close()
						for k := range checks {
							if n := block(g, checks[k]); n != 0 {
								t.Errorf("key %d: a block of %d after Close", k, n)
							}
						}
					})
				}
				all.Wait()
				if fromBlocks.Load() == 0 {
					t.Error("no block was spent")
				}
				for i := range checks {
					if n := 1_000_000 - remaining(t, &s.Memory, checks[i]); n != admitted[i].Load() {
						t.Errorf("key %d: %d counted, %d admitted", i, n, admitted[i].Load())
					}
				}
			})
		})
	}
}

// What of a block is given back is given back to local counting, too, with the rest
// of an older block that joined it.
func TestBlocksGoBackHereToo(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, g *Guard, c algorithms.Check) (dropped int64){
		"Close": func(_ *testing.T, g *Guard, _ algorithms.Check) int64 { _ = g.Close(); return 0 },
		"another limit": func(t *testing.T, g *Guard, c algorithms.Check) int64 {
			c.Limit.Rate = 5000
			_, _, left := g.leases.Find(&c).Spend(&c, time.Now(), 1, new(algorithms.Result))
			g.refundLater(t.Context(), *left) // by itself: what is given back meanwhile would look used to a request
			return 0
		},
		"a block that comes too late": func(_ *testing.T, g *Guard, c algorithms.Check) int64 {
			dropped := block(g, c)
			g.leases.Drop(&c)
			g.refill(context.Background(), g.leases.Find(&c), c, 100)
			_ = g.Close()
			return dropped
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := new(distant)
			bubble(t, s, func(t *testing.T, g *Guard) {
				c := leased(10_000, time.Hour, algorithms.FixedWindow)
				taken(t, g, c) // the store says how much is left
				for _, spent := range []int{30, 10} {
					g.refill(t.Context(), g.leases.Find(&c), c, 50)
					synctest.Wait()
					for range spent {
						if r := taken(t, g, c).Results[0]; r.Source != algorithms.SourceLease {
							t.Fatalf("%+v", r)
						}
					}
				}
				want := 10_000 - (1 + 30 + 10) - end(t, g, c)
				synctest.Wait()
				here, there := remaining(t, &g.local, c), remaining(t, &s.Memory, c)
				if here != want || there != want {
					t.Errorf("%d left by local counting, %d in the store, want %d", here, there, want)
				}
			})
		})
	}
}
