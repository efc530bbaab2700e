package failmode

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

func leased(rate int64, period time.Duration, a algorithms.Algorithm) algorithms.Check {
	return algorithms.Check{Rule: "hot", Key: "everybody", Lease: true, Limit: algorithms.Limit{Rate: rate, Period: period, Algorithm: a}}
}

// inWindow is the window of a result, on the store's clock.
func inWindow(r *algorithms.Result) int64 {
	return r.At.UnixMicro() / r.Check.Limit.Period.Microseconds()
}

// Three processes whose loads differ a hundredfold, on windows of a tenth of a second
// to ten: none ever admits more than the limit, and little of it is lost while all
// of it is wanted.
func TestLeasesNeverOverAdmit(t *testing.T) {
	for _, a := range []algorithms.Algorithm{algorithms.FixedWindow, algorithms.SlidingWindow} {
		for _, period := range []time.Duration{100 * time.Millisecond, time.Second, 10 * time.Second} {
			t.Run(fmt.Sprint(a, " ", period), func(t *testing.T) {
				s := &distant{there: 2 * time.Millisecond, back: time.Millisecond}
				synctest.Test(t, func(t *testing.T) {
					const rate, windows = 3000, 6
					c := leased(rate, period, a)
					time.Sleep(period - time.Duration(time.Now().UnixNano())%period)
					end := time.Now().Add(windows * period)
					var mu sync.Mutex
					admitted, fromBlocks := map[int64]int64{}, int64(0)
					var all sync.WaitGroup
					for _, share := range []int{1, 10, 100} {
						g := join(s, 3)
						defer func() { _ = g.Close() }()
						pause := period / (rate * 2) * 111 / time.Duration(share) * 4 // 200 % of the limit, by four goroutines
						for range 4 {
							all.Go(func() {
								random := rand.New(rand.NewPCG(uint64(share), 1))
								for time.Now().Before(end) {
									r := taken(t, g, c).Results[0]
									mu.Lock()
									if admitted[inWindow(&r)] += r.Charged; r.Source == algorithms.SourceLease {
										fromBlocks += r.Charged
									}
									mu.Unlock()
									time.Sleep(time.Duration(random.Int64N(2*int64(pause) + 1)))
								}
							})
						}
					}
					all.Wait()
					total := int64(0)
					for window, n := range admitted {
						if total += n; n > rate {
							t.Errorf("window %d: %d admitted", window, n)
						}
					}
					t.Logf("%d of %d admitted, %d of them from blocks, by %d commands", total, rate*windows, fromBlocks, s.asked.Load())
					// A sliding window that is always full has room for one at a time.
					if least := int64(rate * windows * 8 / 10); a == algorithms.FixedWindow && (total < least || fromBlocks < total/2) {
						t.Errorf("%d admitted, want at least %d; %d from blocks", total, least, fromBlocks)
					}
				})
			})
		}
	}
}

// A hot key costs a command for each block, and a block lasts a tenth of a second.
func TestALeasedKeyCostsFewCommands(t *testing.T) {
	s := &distant{there: time.Millisecond, back: time.Millisecond}
	bubble(t, s, func(t *testing.T, g *Guard) {
		c := leased(1_000_000, time.Minute, algorithms.FixedWindow)
		const requests = 20_000
		var last algorithms.Result
		for range requests {
			last = taken(t, g, c).Results[0]
			time.Sleep(500 * time.Microsecond)
		}
		t.Logf("%d commands for %d requests in 10 s", s.asked.Load(), requests)
		if n := s.asked.Load(); n > 150 {
			t.Errorf("%d commands", n)
		}
		if used := 1_000_000 - last.Remaining; used < requests || used > requests+1000 {
			t.Errorf("%d used by the estimate", used)
		}
		d, err := g.Peek(t.Context(), c)
		if err != nil || d.Results[0].Remaining != 1_000_000-requests {
			t.Errorf("Peek: %+v, %v", d, err)
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
		if d, _ := s.Peek(t.Context(), c); d.Results[0].Remaining != 1_000_000-requests {
			t.Errorf("after Close %d are left", d.Results[0].Remaining)
		}
	})
}

// hot asks until it is served from a block.
func hot(t *testing.T, g *Guard, c algorithms.Check) algorithms.Result {
	t.Helper()
	for range 1000 {
		if r := taken(t, g, c).Results[0]; r.Source == algorithms.SourceLease {
			return r
		}
		synctest.Wait()
	}
	t.Fatal("never served from a block")
	return algorithms.Result{}
}

// warmUp asks for a key so often that it has a block, and none is under way.
func warmUp(t *testing.T, g *Guard, c algorithms.Check) {
	t.Helper()
	for range 100 {
		taken(t, g, c)
	}
	synctest.Wait()
	hot(t, g, c)
	synctest.Wait()
}

// However many units are asked for, a block is at most a quarter of what the store has
// left, divided by the number of processes.
func TestABlockIsAtMostAQuarter(t *testing.T) {
	for _, instances := range []int64{1, 3} {
		s := new(distant)
		synctest.Test(t, func(t *testing.T) {
			g := join(s, int(instances))
			defer func() { _ = g.Close() }()
			c := leased(10_000, time.Hour, algorithms.FixedWindow)
			c.Cost = 4000
			taken(t, g, c)
			before := remaining(t, &s.Memory, c)
			c.Cost = 1
			taken(t, g, c)
			synctest.Wait()
			if units, most := block(g, c), before/(4*instances); units != most || remaining(t, &s.Memory, c) != before-1-units {
				t.Errorf("%d processes: a block of %d, want %d of %d", instances, units, most, before)
			}
		})
	}
}

func block(g *Guard, c algorithms.Check) int64 {
	l, _ := g.leases.FindOrMake(&c, time.Now())
	return l.Left(time.Now())
}

func TestWhatBecomesOfABlock(t *testing.T) {
	c := leased(10_000, time.Hour, algorithms.FixedWindow)
	scene := func(name string, f func(t *testing.T, g *Guard, s *distant)) {
		t.Run(name, func(t *testing.T) {
			s := new(distant)
			bubble(t, s, func(t *testing.T, g *Guard) {
				warmUp(t, g, c)
				f(t, g, s)
			})
		})
	}
	scene("a request that another rule denies takes nothing", func(t *testing.T, g *Guard, _ *distant) {
		full := check("full", 1, Local)
		taken(t, g, full)
		before := block(g, c)
		for range 10 {
			d := taken(t, g, c, full)
			if r := d.Results[0]; d.Allowed || r.Charged != 0 || !r.HasRoom || r.Check != c || d.Results[1].HasRoom {
				t.Fatalf("%+v", d)
			}
		}
		synctest.Wait()
		if after := block(g, c); after < before {
			t.Errorf("%d left, %d before", after, before)
		}
	})
	scene("a request that nobody decided has nothing of it", func(t *testing.T, g *Guard, _ *distant) {
		full, dear := check("full", 1, Local), c
		dear.Cost = 1000
		for taken(t, g, full).Allowed {
		}
		before := hot(t, g, c).Remaining
		d := taken(t, g, dear, full)
		if want := (algorithms.Result{Check: dear}); d.Allowed || d.Results[0] != want {
			t.Errorf("%+v", d.Results[0])
		}
		if now := hot(t, g, c).Remaining; now < before-100 {
			t.Errorf("%d left by what nobody said, %d before", now, before)
		}
	})
	scene("what is settled is settled in the store", func(t *testing.T, g *Guard, s *distant) {
		charges := []algorithms.Result{hot(t, g, c), hot(t, g, c)}
		synctest.Wait() // for what they have made the Guard fetch
		for i, cost := range []int64{0, 31} {
			here, there := block(g, c), remaining(t, &s.Memory, c)
			results, err := g.Settle(t.Context(), algorithms.Charge{Result: charges[i], Cost: cost})
			if now := remaining(t, &s.Memory, c); err != nil || results[0].Charged != cost || there-now != cost-1 || block(g, c) != here {
				t.Errorf("%+v, %v; %d left in the store and %d here, %d and %d before", results, err, now, block(g, c), there, here)
			}
		}
	})
	scene("it ends with the rule's limit, and with Reset", func(t *testing.T, g *Guard, _ *distant) {
		lower := c
		lower.Limit.Rate = 5000
		if r := taken(t, g, lower).Results[0]; r.Source == algorithms.SourceLease {
			t.Errorf("%+v", r)
		}
		hot(t, g, c)
		if err := g.Reset(t.Context(), c); err != nil || block(g, c) != 0 {
			t.Errorf("%v, %d left", err, block(g, c))
		}
	})
	scene("a Reset through another process ends it within a second", func(t *testing.T, g *Guard, s *distant) {
		if err := s.Reset(t.Context(), c); err != nil || taken(t, g, c).Results[0].Source != algorithms.SourceLease {
			t.Errorf("%v: it is known at once", err)
		}
		if n := block(g, c); n > c.Limit.Rate/2 {
			t.Errorf("%d may be spent after it, want at most half of the limit", n)
		}
		time.Sleep(time.Second)
		if n := block(g, c); n != 0 {
			t.Errorf("%d left", n)
		}
	})
	scene("what costs more is charged after it is gone, too", func(t *testing.T, g *Guard, s *distant) {
		r := hot(t, g, c)
		_ = g.Close()
		taken(t, g, c) // and its key has a lease again, without a block
		stored := remaining(t, &s.Memory, c)
		results, err := g.Settle(t.Context(), algorithms.Charge{Result: r, Cost: 31})
		if now := remaining(t, &s.Memory, c); err != nil || results[0].Charged != 31 || stored-now != 30 {
			t.Errorf("%+v, %v; %d left in the store, %d before", results, err, now, stored)
		}
	})
	scene("it ends after a second, and is not lost", func(t *testing.T, g *Guard, s *distant) {
		time.Sleep(time.Second)
		if n := block(g, c); n != 0 {
			t.Errorf("%d left", n)
		}
		for range 100 {
			taken(t, g, c)
		}
		synctest.Wait()
		_ = g.Close()
		if n := 10_000 - remaining(t, &s.Memory, c); n > 250 {
			t.Errorf("%d used", n)
		}
	})
	for name, next := range map[string]func(t *testing.T, g *Guard) int64{
		"one that nobody asks for any more":     func(*testing.T, *Guard) int64 { return 0 },
		"one of a key that is asked for rarely": func(t *testing.T, g *Guard) int64 { return taken(t, g, c).Results[0].Charged },
		"one whose rule has no Lease any more": func(t *testing.T, g *Guard) int64 {
			c := c
			c.Lease = false
			return taken(t, g, c).Results[0].Charged
		},
	} {
		scene(name+" goes back within its second", func(t *testing.T, g *Guard, s *distant) {
			for begun := time.Now(); time.Since(begun) < 2*time.Second || block(g, c) < 10; time.Sleep(time.Millisecond) {
				taken(t, g, c)
			}
			synctest.Wait()
			stored, units, others := remaining(t, &s.Memory, c), block(g, c), int64(0)
			for begun := time.Now(); time.Since(begun) <= time.Second; time.Sleep(220 * time.Millisecond) {
				others += next(t, g)
			}
			synctest.Wait()
			if now := remaining(t, &s.Memory, c); now != stored+units-others {
				t.Errorf("%d left in the store, %d before and %d in the block, %d admitted since", now, stored, units, others)
			}
		})
	}
	strikes := check("r~strikes", 1, Local) // which nothing here remembers
	strikes.StoreOnly = true
	for name, of := range map[string]struct {
		reset algorithms.Check
		ends  bool
	}{"Reset": {c, true}, "ban of another key": {strikes, false}} {
		scene(fmt.Sprintf("one that was granted before a %s: ends %v", name, of.ends), func(t *testing.T, g *Guard, s *distant) {
			s.back = 10 * time.Millisecond
			g.refill(t.Context(), g.leases.Find(&c), c, 100)
			synctest.Wait()
			if err := g.Reset(t.Context(), of.reset); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second / 2)
			if n := block(g, c); n == 0 != of.ends {
				t.Errorf("%d left", n)
			}
		})
	}
	scene("it ends before the window", func(t *testing.T, g *Guard, _ *distant) {
		time.Sleep(time.Hour - time.Duration(time.Now().UnixNano())%time.Hour - 9*time.Second)
		warmUp(t, g, c)
		time.Sleep(9*time.Second - 9*time.Millisecond)
		if n := block(g, c); n != 0 {
			t.Errorf("%d left when the window ends", n)
		}
	})
	scene("it is spent in an outage, and then the share", func(t *testing.T, g *Guard, s *distant) {
		s.away.Store(&errAway)
		left := block(g, c)
		for range left {
			if r := taken(t, g, c).Results[0]; r.Source != algorithms.SourceLease {
				t.Fatalf("%+v with %d left", r, block(g, c))
			}
		}
		if r := taken(t, g, c).Results[0]; r.Source != algorithms.SourceFallback {
			t.Errorf("%+v", r)
		}
	})
	scene("one refill at a time", func(t *testing.T, g *Guard, s *distant) {
		s.there = time.Second
		s.asked.Store(0)
		for range block(g, c) {
			if taken(t, g, c).Results[0].Source != algorithms.SourceLease {
				t.Fatal("not from the block")
			}
		}
		synctest.Wait()
		if n := s.asked.Load(); n != 1 {
			t.Errorf("asked %d times", n)
		}
		time.Sleep(2 * time.Second)
	})
}

// Random histories of several processes over one store: what they admitted in a
// window was counted there, whatever was given back, settled, reset or lost.
func TestLeasesModel(t *testing.T) {
	for seed := range uint64(40) {
		s := &distant{there: time.Millisecond, back: 3 * time.Millisecond}
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 3))
			period := []time.Duration{50 * time.Millisecond, time.Second, time.Minute}[seed%3]
			c := leased(400, period, []algorithms.Algorithm{algorithms.FixedWindow, algorithms.SlidingWindow}[seed%2])
			guards := make([]*Guard, 3)
			for i := range guards {
				guards[i] = join(s, 3)
			}
			var killed []*Guard
			admitted := map[int64]int64{}
			for range 5000 {
				g := guards[random.IntN(3)]
				c := c
				c.Cost = 1 + random.Int64N(3)
				switch random.IntN(400) {
				case 0:
					time.Sleep(time.Duration(random.Int64N(2 * int64(period))))
				case 1: // killed: its blocks are lost
					i := random.IntN(3)
					killed = append(killed, guards[i])
					guards[i] = join(s, 3)
				case 2:
					if err := g.Close(); err != nil { // its decisions go on
						t.Fatal(err)
					}
				case 3:
					s.away.Store(&errAway)
				case 4, 5, 6:
					s.away.Store(nil)
				}
				d := taken(t, g, c)
				r := d.Results[0]
				if r.Source == algorithms.SourceFallback {
					continue // at a share
				}
				admitted[inWindow(&r)] += r.Charged
				if r.Charged > 1 && random.IntN(5) == 0 {
					results, err := g.Settle(t.Context(), algorithms.Charge{Result: r, Cost: r.Charged - 1})
					if err == nil {
						admitted[inWindow(&r)] += results[0].Charged - r.Charged
					}
				}
				if random.IntN(20) == 0 {
					time.Sleep(time.Duration(random.Int64N(int64(period) / 100)))
				}
			}
			for window, n := range admitted {
				if n > 400 {
					t.Errorf("seed %d, window %d: %d admitted", seed, window, n)
				}
			}
			for _, g := range slices.Concat(guards, killed) {
				_ = g.Close()
			}
		})
	}
}
