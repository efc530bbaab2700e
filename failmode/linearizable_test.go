package failmode

import (
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
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
}
