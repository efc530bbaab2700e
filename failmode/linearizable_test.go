package failmode

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/seed75154129/ratelimit/algorithms"
)

// A process with a cache of denials admits and denies as a counter would, whatever
// meets on a key and is lost on the way; what it denies by the cache is as of no
// earlier than the give-backs and resets that it has under way. So do several
// processes while nothing is given back. What is left is exact where the store says
// it. In the cache it is as of the store's last answer, and lacks what was charged
// at the same time.
func TestTheDenyCacheIsLinearizable(t *testing.T) {
	t.Parallel()
	const limit, clients, calls = 10, 5, 12
	for _, s := range stores {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			each, cached, unknown := s.start(t), 0, 0
			for _, l := range limitsOf(limit, limit*time.Hour) {
				for i := range 2 * s.histories {
					guards := 1 + 2*(i%2)
					each(func(t *testing.T, limiter algorithms.Limiter, s store) {
						h, lossy := new(callHistory), &lossy{Limiter: limiter, store: s}
						gs := make([]*Guard, guards)
						for i := range gs {
							gs[i] = guardOf(lossy, guards)
							defer func() { _ = gs[i].Close() }()
						}
						var all sync.WaitGroup
						for client := range clients {
							all.Go(func() { h.crowd(t, client, gs[client%guards], l, calls, guards == 1) })
						}
						all.Wait()
						for _, op := range h.ops {
							if out := op.Output.(told); out.unknown {
								unknown++
							} else if out.cached {
								cached++
							}
						}
						h.beforeChanges()
						h.check(t, l, counter(limit), porcupine.Ok)
					})
				}
			}
			t.Logf("%d denials by the cache, %d answers unknown", cached, unknown)
			if cached == 0 {
				t.Error("the cache was not used")
			}
		})
	}
}

// crowd does at random what a client can.
func (h *callHistory) crowd(t *testing.T, client int, g *Guard, l algorithms.Limit, calls int, alone bool) {
	var charged []algorithms.Result
	for range calls {
		c := algorithms.Check{Rule: "r", Key: "k", Limit: l, Cost: rand.Int64N(3) + 1}
		switch dice := rand.IntN(20); {
		case dice < 2:
			h.take(t, client, g, "peek", c)
		case dice < 3 && alone:
			h.do(client, call{what: "reset"}, func() told {
				return told{unknown: errors.Is(g.Reset(t.Context(), c), os.ErrDeadlineExceeded)}
			})
		case dice < 6 && alone && len(charged) > 0 && l.Burst == 0: // the slot of a queue may have to stay
			r := charged[0]
			charged = charged[1:]
			h.do(client, call{"give back", r.Charged}, func() told {
				return told{unknown: errors.Is(settleAll(t.Context(), g, 0, r), os.ErrDeadlineExceeded)}
			})
		default:
			if r := h.take(t, client, g, "take", c); r.Charged > 0 && r.Source != algorithms.SourceFallback {
				charged = append(charged, r)
			}
		}
	}
}

// What several processes admit from blocks fits into the limit, in an order in
// which each call took effect while it was under way, whatever is given back and lost.
// No more holds: what one process denies another one's block may have. The store,
// which counts blocks as it counts requests, is a counter in every field.
func TestLeasesAreLinearizable(t *testing.T) {
	t.Parallel()
	const limit, guards, clients, calls = 400, 3, 6, 80
	for _, s := range stores {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			each, leases := s.start(t), 0
			for range s.histories {
				for _, a := range []algorithms.Algorithm{algorithms.FixedWindow, algorithms.SlidingWindow} {
					c := leased(limit, limit*time.Hour, a)
					each(func(t *testing.T, limiter algorithms.Limiter, s store) {
						h, there := new(callHistory), new(callHistory)
						lossy := &lossy{Limiter: limiter, store: s, history: there}
						leases += h.spend(t, lossy, c, guards, clients, calls)
						h.check(t, c.Limit, bound(limit), porcupine.Ok)
						there.check(t, c.Limit, counter(limit), porcupine.Ok)
					})
				}
			}
			t.Logf("%d requests from blocks", leases)
			if leases == 0 {
				t.Error("no block was spent")
			}
		})
	}
}

// spend has clients of several processes take from one key and give some of it
// back. It returns how many requests were served from blocks.
func (h *callHistory) spend(t *testing.T, l *lossy, c algorithms.Check, guards, clients, calls int) (leases int) {
	gs := make([]*Guard, guards)
	for i := range gs {
		gs[i] = guardOf(l, guards)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	for client := range clients {
		all.Go(func() {
			g := gs[client%guards]
			for range calls {
				c := c
				c.Cost = rand.Int64N(2) + 1
				r := h.take(t, client, g, "take", c)
				if r.Source == algorithms.SourceLease {
					mu.Lock()
					leases++
					mu.Unlock()
				}
				if r.Charged > 0 && r.Source != algorithms.SourceFallback && rand.IntN(8) == 0 {
					h.do(client, call{"give back", r.Charged}, func() told {
						results, err := g.Settle(t.Context(), algorithms.Charge{Result: r})
						return told{allowed: err != nil || results[0].Charged == 0} // an error may hide that it was
					})
				}
			}
		})
	}
	all.Wait()
	for _, g := range gs { // so that the store's history is complete
		_ = g.Close()
	}
	return leases
}

// The checks must be able to fail.
func TestMistakesOfGuardsAreNotLinearizable(t *testing.T) {
	t.Run("a cache that does not notice a give-back", func(t *testing.T) {
		s, h := new(distant), new(callHistory)
		bubble(t, s, func(t *testing.T, g *Guard) {
			c := check("r", 2, Local)
			var last algorithms.Result
			for range 3 {
				if r := h.take(t, 0, g, "take", c); r.Charged > 0 {
					last = r
				}
			}
			h.do(0, call{"give back", 1}, func() told {
				_ = settleAll(t.Context(), s, 0, last) // through another process
				return told{}
			})
			h.take(t, 0, g, "take", c)
		})
		h.beforeChanges()
		h.check(t, "the cache", counter(2), porcupine.Illegal)
	})
	t.Run("blocks that nobody counts", func(t *testing.T) {
		s, h := new(distant), new(callHistory)
		bubble(t, s, func(t *testing.T, g *Guard) {
			g.Limiter = uncounted{s}
			c := leased(400, 400*time.Hour, algorithms.FixedWindow)
			c.Cost = 1
			for range 1000 {
				h.take(t, 0, g, "take", c)
				synctest.Wait() // for the next block
			}
		})
		h.check(t, "leases", bound(400), porcupine.Illegal)
	})
}

// uncounted grants blocks without counting them.
type uncounted struct{ *distant }

func (s uncounted) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	d, err := s.distant.Take(ctx, checks...)
	if r := &d.Results[0]; r.Charged > 2 {
		err = settleAll(ctx, s, 0, *r)
	}
	return d, err
}
