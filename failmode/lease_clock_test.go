package failmode

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// The processes' clocks run a hundred times as fast as the store's, or at a hundredth
// of its speed, like those of a machine that is paused again and again. No window
// grants more than the limit. Fast processes end their blocks early. Slow ones may
// spend a block after its window, when the next one has the whole limit; what
// blocks hold at a time, half of the limit, bounds that.
func TestLeasesWithClocksThatRunApart(t *testing.T) {
	const rate, period = 2000, 10 * time.Second
	for name, fast := range map[string]bool{"fast processes": true, "slow processes": false} {
		for _, a := range []algorithms.Algorithm{algorithms.FixedWindow, algorithms.SlidingWindow} {
			t.Run(fmt.Sprint(name, " ", a), func(t *testing.T) {
				s := &distant{there: 100 * time.Microsecond, back: 100 * time.Microsecond}
				synctest.Test(t, func(t *testing.T) {
					begun := time.Now().Truncate(period)
					there := func() time.Time {
						if fast {
							return begun.Add(time.Since(begun) / 100)
						}
						return begun.Add(time.Since(begun) * 100)
					}
					s.Memory.Now = there
					const windows = 5
					end := begun.Add(windows * period)
					c := leased(rate, period, a)
					const clients = 20
					pause := period * clients / rate * 100 / 2 // for twice the limit
					if !fast {
						pause = period * clients / rate / 100 * 10 / 9 // for less, since a denial is known for long
					}
					var mu sync.Mutex
					granted, admitted, fromBlocks, late := map[int64]int64{}, map[int64]int64{}, int64(0), int64(0)
					var all sync.WaitGroup
					for range 2 {
						g := join(s, 2)
						defer func() { _ = g.Close() }()
						for range clients / 2 {
							all.Go(func() {
								for there().Before(end) {
									r := taken(t, g, c).Results[0]
									at := r.At
									if r.Source == algorithms.SourceLease {
										at = there() // and not what the process takes it for
									}
									window := at.UnixMicro() / period.Microseconds()
									mu.Lock()
									granted[r.Trace.Charge.At] += r.Charged
									admitted[window] += r.Charged
									if r.Source == algorithms.SourceLease {
										fromBlocks += r.Charged
										if window*period.Microseconds() != r.Trace.Charge.At {
											late += r.Charged
										}
									}
									mu.Unlock()
									time.Sleep(time.Duration(rand.Int64N(2 * int64(pause))))
								}
							})
						}
					}
					all.Wait()
					most := int64(rate)
					if !fast {
						most += rate / 2
					}
					for window, n := range granted {
						if n > rate {
							t.Errorf("window %d granted %d", window, n)
						}
					}
					for window, n := range admitted {
						if n > most {
							t.Errorf("%d admitted in window %d, want at most %d", n, window, most)
						}
					}
					t.Logf("%d from blocks, %d of them late; %v", fromBlocks, late, admitted)
					if fromBlocks == 0 || fast && late > 0 {
						t.Errorf("%d from blocks, %d of them late", fromBlocks, late)
					}
				})
			})
		}
	}
}

// A store's clock that is slewed runs faster by up to a thousandth. By it, too, no
// block outlives its window.
func TestBlocksEndInTimeByASlewedClock(t *testing.T) {
	const period = 800 * time.Millisecond // below the longest life of a block
	for _, a := range []algorithms.Algorithm{algorithms.FixedWindow, algorithms.SlidingWindow} {
		t.Run(string(a), func(t *testing.T) {
			s := new(distant)
			bubble(t, s, func(t *testing.T, g *Guard) {
				begun := time.Now().Truncate(period)
				there := func() time.Time { return begun.Add(time.Since(begun) * 1001 / 1000) }
				s.Memory.Now = there
				c := leased(10_000, period, a)
				for range 3 {
					window := there().Truncate(period)
					warmUp(t, g, c)
					r := hot(t, g, c)
					if granted := r.Trace.Charge.At; granted != window.UnixMicro() {
						t.Fatalf("a block of %d in window %d", granted, window.UnixMicro())
					}
					for there().Before(window.Add(period)) {
						time.Sleep(100 * time.Microsecond)
					}
					if n := block(g, c); n != 0 {
						t.Fatalf("%d left after the window", n)
					}
				}
			})
		})
	}
}
