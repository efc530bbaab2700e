package failmode

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/redistest"
)

// hotCheck is a check of a hot key, with a pause that is a twentieth of the period or a second.
func hotCheck(rate int64, period time.Duration, a algorithms.Algorithm) algorithms.Check {
	return algorithms.Check{Rule: "hot", Key: "everybody", Sync: min(period/20, time.Second), Limit: algorithms.Limit{Rate: rate, Period: period, Algorithm: a}}
}

// A told store counts what it is told.
type toldStore struct {
	distant
	tells   atomic.Int64 // commands
	largest atomic.Int64 // counts in one of them
	late    atomic.Bool  // tells are counted, and not answered
	telling atomic.Bool  // tells are answered in an outage, too
}

func (s *toldStore) Settle(ctx context.Context, charges ...algorithms.Charge) ([]algorithms.Result, error) {
	s.tells.Add(1)
	s.largest.Store(max(s.largest.Load(), int64(len(charges))))
	if err := s.away.Load(); err != nil && !s.telling.Load() {
		return nil, *err
	}
	results, err := s.distant.Settle(ctx, charges...)
	if s.late.Load() {
		return nil, context.DeadlineExceeded
	}
	return results, err
}

func (s *toldStore) process(instances int) *Guard { return join(s, instances) }

// admits sends so many requests, and returns how many were admitted, by their source.
func admits(t *testing.T, g *Guard, requests int, checks ...algorithms.Check) map[algorithms.Source]int {
	t.Helper()
	admitted := map[algorithms.Source]int{}
	for range requests {
		if d := taken(t, g, checks...); d.Allowed {
			admitted[d.Results[0].Source]++
		}
	}
	return admitted
}

// warm has a process get a copy.
func warm(t *testing.T, g *Guard, c algorithms.Check) {
	t.Helper()
	for range 3 {
		if taken(t, g, c).Results[0].Source == algorithms.SourceSync {
			return
		}
	}
	t.Fatal("not decided by a copy")
}

// A crowd is what clients do in a burst: until has the process with this number get requests,
// of a fiftieth of the limit if they are dear, until ten in a row are denied.
var crowds = map[string]func(processes int, until func(process int, dear bool)){
	"all at once": func(processes int, until func(int, bool)) {
		var all sync.WaitGroup
		for i := range processes {
			for range 4 {
				all.Go(func() { until(i, false) })
			}
		}
		all.Wait()
	},
	"one after the other": func(processes int, until func(int, bool)) {
		for i := range processes {
			until(i, false)
		}
	},
	"one uses all before the others learn of it": func(processes int, until func(int, bool)) {
		until(0, true)
		for i := range processes {
			until(processes-1-i, false)
		}
	},
}

// However many processes there are, and whichever of them gets the requests, they admit in a
// period at most a tenth more than the limit.
func TestSyncAdmitsAtMostATenthMore(t *testing.T) {
	for _, processes := range []int{2, 10, 100} {
		for _, of := range []struct {
			limit, sync string
		}{{"10/1s", "50ms"}, {"1000/1s", "20ms"}, {"1000/1m", "20ms"}, {"1000/1m", "1s"}, {"10000/1m", "20ms"}, {"10000/1m", "1s"}} {
			worst, at, copies, all := 0.0, "", 0, 0
			for _, a := range []algorithms.Algorithm{algorithms.FixedWindow, algorithms.SlidingWindow, algorithms.TokenBucket, algorithms.GCRA} {
				l, err := algorithms.ParseLimit(of.limit + " " + a.String())
				if err != nil {
					t.Fatal(err)
				}
				c := algorithms.Check{Rule: "hot", Limit: l}
				c.Sync, _ = time.ParseDuration(of.sync)
				for name, crowd := range crowds {
					synctest.Test(t, func(t *testing.T) {
						s := &toldStore{distant: distant{there: 50 * time.Microsecond, back: 50 * time.Microsecond}}
						gs := make([]*Guard, processes)
						for i := range gs {
							gs[i] = s.process(processes)
							defer func() { _ = gs[i].Close() }()
						}
						for range 3 {
							time.Sleep(l.Period - time.Duration(time.Now().UnixNano())%l.Period)
							if a == algorithms.SlidingWindow {
								time.Sleep(l.Period - 1) // the last window is out of view
							}
							begun, units := time.Now(), int64(0)
							for _, g := range gs {
								units += taken(t, g, c).Results[0].Charged
							}
							var mu sync.Mutex
							crowd(processes, func(process int, dear bool) {
								c := c
								if dear {
									c.Cost = max(l.Rate/50, 1)
								}
								for denied := 0; denied < 10; {
									r := taken(t, gs[process], c).Results[0]
									mu.Lock()
									units += r.Charged
									if all++; r.Source == algorithms.SourceSync {
										copies++
									}
									if denied++; r.HasRoom {
										denied = 0
									}
									mu.Unlock()
								}
							})
							most := float64(l.Rate)
							if a == algorithms.TokenBucket || a == algorithms.GCRA {
								most *= 1 + float64(time.Since(begun))/float64(l.Period)
							}
							if part := float64(units) / most; part > worst {
								worst, at = part, fmt.Sprint(a, ", ", name)
							}
						}
					})
				}
			}
			t.Logf("%3d processes, %8s, sync %4s: at most %.3f of the limit (%s); %d of %d requests by copies", processes, of.limit, of.sync, worst, at, copies, all)
			if worst > 1.1 {
				t.Error("more than a tenth above the limit")
			}
		}
	}
}

// The same on a Redis, whose clock and network are real.
func TestSyncOnRedis(t *testing.T) {
	t.Parallel()
	for _, processes := range []int{2, 10} {
		for _, of := range []struct {
			rate   int64
			period time.Duration
			sync   time.Duration
		}{{1000, time.Second, 20 * time.Millisecond}, {20_000, time.Second, 50 * time.Millisecond}} {
			for _, a := range []algorithms.Algorithm{algorithms.FixedWindow, algorithms.TokenBucket} {
				server := redistest.Start(t)
				c := hotCheck(of.rate, of.period, a)
				c.Sync = of.sync
				var group sync.WaitGroup
				var mu sync.Mutex
				admitted, copies := map[int64]int{}, 0
				end := time.Now().Add(2 * of.period)
				for range processes {
					client := redis.NewClient(algorithms.FailFast(&redis.Options{Addr: server.Addr}))
					g := &Guard{Limiter: &algorithms.Redis{Client: client, Namespace: "sync", Budget: time.Second}, Instances: processes}
					defer func() { _ = g.Close(); _ = client.Close() }()
					for range 4 {
						group.Go(func() {
							for time.Now().Before(end) {
								r := taken(t, g, c).Results[0]
								if r.Charged == 0 {
									continue
								}
								mu.Lock()
								admitted[inWindow(&r)]++
								if r.Source == algorithms.SourceSync {
									copies++
								}
								mu.Unlock()
							}
						})
					}
				}
				group.Wait()
				most, total := 0, 0
				for _, n := range admitted {
					most, total = max(most, n), total+n
				}
				limit := of.rate
				if a == algorithms.TokenBucket {
					limit *= 2
				}
				t.Logf("%d processes, %d/%s %s, sync %s: at most %.3f of the limit in a period, %d of %d by copies", processes, of.rate, of.period, a, of.sync, float64(most)/float64(limit), copies, total)
				if 10*int64(most) > 11*limit {
					t.Errorf("%d admitted in a period, the limit is %d", most, limit)
				}
			}
		}
	}
}

// What is told to a Redis or a cluster, refunds among it, is counted there by each algorithm.
func TestSyncTellsRedis(t *testing.T) {
	t.Parallel()
	for name, client := range map[string]algorithms.Client{"server": redistest.Start(t).Client(t), "cluster": redistest.StartCluster(t).Client(t)} {
		g := &Guard{Limiter: &algorithms.Redis{Client: client, Namespace: "told", Budget: time.Second}, Instances: 1}
		var checks []algorithms.Check
		for i, text := range []string{"1000/365d fixed_window", "1000/365d sliding_window", "1000/365d token_bucket", "1000/365d gcra", "1000/year@UTC"} {
			l, err := algorithms.ParseLimit(text)
			if err != nil {
				t.Fatal(err)
			}
			for key := range maxTold {
				checks = append(checks, algorithms.Check{Rule: fmt.Sprint(i), Key: fmt.Sprint(key), Limit: l, Sync: time.Second})
			}
		}
		for _, c := range checks {
			var charged []algorithms.Result
			for range 6 {
				charged = append(charged, taken(t, g, c).Results[0])
			}
			if r := charged[5]; r.Source != algorithms.SourceSync {
				t.Fatalf("%s: %+v", name, r)
			}
			if err := settleAll(t.Context(), g, 0, charged[4:]...); err != nil {
				t.Fatal(err)
			}
		}
		_ = g.Close()
		for _, c := range checks {
			if left := remaining(t, g, c); left != 1000-4 {
				t.Fatalf("%s: %s, key %s: %d left, want 996", name, c.Rule, c.Key, left)
			}
		}
	}
}

// inWindow is the period of a result, on the store's clock.
func inWindow(r *algorithms.Result) int64 {
	return r.At.UnixMicro() / r.Check.Limit.Period.Microseconds()
}

// What becomes of units that were admitted by a copy.
func TestSyncedUnits(t *testing.T) {
	hot := hotCheck(10_000, time.Hour, algorithms.FixedWindow)
	hot.Sync = 100 * time.Millisecond
	pause := func() { time.Sleep(2*hot.Sync + 1); synctest.Wait() } // what is untold is told, and the copy is too old then
	for name, f := range map[string]func(t *testing.T, g *Guard, s *toldStore){
		"are told once, by few commands": func(t *testing.T, g *Guard, s *toldStore) {
			for range 200 {
				admits(t, g, 5, hot)
				time.Sleep(hot.Sync / 10)
			}
			pause()
			if n, asked, tells := s.used(t, hot), s.asked.Load(), s.tells.Load(); n != 1000+1 || asked != 1 || tells > 25 {
				t.Errorf("%d counted, want 1001; asked %d times, told %d times", n, asked, tells)
			}
		},
		"are told once, though no answer comes": func(t *testing.T, g *Guard, s *toldStore) {
			s.late.Store(true)
			admitted := 1
			for range 100 {
				for _, n := range admits(t, g, 5, hot) {
					admitted += n
				}
				time.Sleep(hot.Sync / 10)
			}
			pause()
			if n := s.used(t, hot); n != int64(admitted) {
				t.Errorf("%d counted, %d admitted", n, admitted)
			}
		},
		"by a copy that is too old, ask": func(t *testing.T, g *Guard, _ *toldStore) {
			time.Sleep(2*hot.Sync + 1)
			if by := admits(t, g, 1, hot); by[algorithms.SourceRedis] != 1 {
				t.Errorf("%v", by)
			}
		},
		"are a tenth of what is left, divided by the processes": func(t *testing.T, g *Guard, s *toldStore) {
			s.settles = time.Minute
			n := 0
			for range 50 {
				n += admits(t, g, 30, hot)[algorithms.SourceSync]
				time.Sleep(time.Millisecond)
			}
			if n < 440 || n > 500 { // the store's answers say that less is left
				t.Errorf("%d", n)
			}
		},
		"are told before time if half of them are used": func(t *testing.T, g *Guard, s *toldStore) {
			n := 0
			for range 50 {
				n += admits(t, g, 60, hot)[algorithms.SourceSync]
				time.Sleep(time.Millisecond)
			}
			if asked := s.asked.Load(); n < 2900 || asked > 10 {
				t.Errorf("%d of 3000 by copies; asked %d times", n, asked)
			}
		},
		"that are not confirmed stay in the account in a flood of keys": func(t *testing.T, g *Guard, s *toldStore) {
			s.settles = time.Minute
			n := admits(t, g, 300, hot)[algorithms.SourceSync]
			time.Sleep(3 * hot.Sync)
			cold := hot
			for i := range 20_000 {
				cold.Key = fmt.Sprint(i)
				taken(t, g, cold)
				if i%1000 == 0 {
					time.Sleep(hot.Sync)
				}
			}
			if n += admits(t, g, 1000, hot)[algorithms.SourceSync]; n > 500 {
				t.Errorf("%d", n)
			}
		},
		"by an answer that comes late do not count": func(t *testing.T, g *Guard, s *toldStore) {
			hot := hot
			hot.Key = "another"
			s.back = 20 * time.Millisecond
			go func() { _, _ = g.Take(context.Background(), hot) }()
			time.Sleep(time.Millisecond)
			synctest.Wait()
			dear := hot
			dear.Sync, dear.Cost, s.back = 0, 9900, 0
			taken(t, &s.Memory, dear)
			admits(t, g, 1, hot)
			time.Sleep(30 * time.Millisecond)
			if n := admits(t, g, 90, hot)[algorithms.SourceSync]; n > 5 {
				t.Errorf("%d of 90 by copies", n)
			}
		},
		"that are refunded end a known denial": func(t *testing.T, g *Guard, _ *toldStore) {
			r := taken(t, g, hot).Results[0]
			pause()
			dear := hot
			dear.Cost = 9999
			if taken(t, g, dear).Allowed || taken(t, g, dear).Results[0].Source != algorithms.SourceDenyCache {
				t.Error("not denied")
			}
			if _, err := g.Settle(t.Context(), algorithms.Charge{Result: r}); err != nil {
				t.Fatal(err)
			}
			pause()
			if d := taken(t, g, dear); !d.Allowed {
				t.Errorf("%+v", d.Results[0])
			}
		},
		"by a copy end a known denial whose time is over": func(t *testing.T, g *Guard, s *toldStore) {
			pause()
			most, dear := hot, hot
			most.Sync, most.Cost, dear.Cost = 0, 9990, 20
			taken(t, &s.Memory, most)
			if by := admits(t, g, 2, dear); len(by) != 0 {
				t.Errorf("not denied: %v", by)
			}
			time.Sleep(time.Hour - time.Duration(time.Now().UnixNano())%time.Hour)
			taken(t, g, hot) // asks, for a copy
			if by := admits(t, g, 10, dear); by[algorithms.SourceSync] != 10 {
				t.Errorf("%v", by)
			}
		},
		"are not told while the circuit is open": func(t *testing.T, g *Guard, s *toldStore) {
			admits(t, g, 50, hot)
			s.telling.Store(true)
			s.away.Store(&errAway)
			askFor(g, 50, check("other", 10, Local))
			if len(down(g)) == 0 {
				t.Fatal("the circuit is closed")
			}
			pause()
			if n := s.tells.Load(); n != 0 {
				t.Errorf("told %d times", n)
			}
		},
		"of a denied request come back": func(t *testing.T, g *Guard, s *toldStore) {
			full := check("full", 1, Local)
			taken(t, g, full)
			s.Memory.Now = nil
			full.Cost = 2 // which no known denial answers
			if d := taken(t, g, hot, full); d.Allowed || d.Results[0].Charged != 0 || !d.Results[0].HasRoom || d.Results[0].Check != hot {
				t.Errorf("%+v", d)
			}
			pause()
			if n := s.used(t, hot); n != 1 {
				t.Errorf("%d counted, want 1", n)
			}
		},
		"of a denied request come back though they were told": func(t *testing.T, g *Guard, s *toldStore) {
			s.there = 4 * hot.Sync
			full := check("full", 1, Local)
			full.Cost = 2
			taken(t, g, hot, full)
			if n := s.used(t, hot); n != 2 {
				t.Errorf("%d counted while the other check is asked about, want 2", n)
			}
			pause()
			if n := s.used(t, hot); n != 1 {
				t.Errorf("%d counted, want 1", n)
			}
		},
		"of an ended window are not refunded": func(t *testing.T, g *Guard, s *toldStore) {
			time.Sleep(time.Hour - time.Duration(time.Now().UnixNano())%time.Hour - hot.Sync/4)
			admits(t, g, 1, hot)
			d := taken(t, g, hot)
			if d.Results[0].Source != algorithms.SourceSync {
				t.Fatalf("%+v", d.Results[0])
			}
			time.Sleep(hot.Sync / 2)
			admits(t, g, 50, hot)
			if _, err := g.Settle(t.Context(), algorithms.Charge{Result: d.Results[0]}); err != nil {
				t.Fatal(err)
			}
			pause()
			if n := s.used(t, hot); n != 51 {
				t.Errorf("%d counted, want 51", n)
			}
		},
		"are settled without a command": func(t *testing.T, g *Guard, s *toldStore) {
			for _, cost := range []int64{0, 30} {
				pause()
				taken(t, g, hot)
				r, before := taken(t, g, hot).Results[0], s.used(t, hot)
				tells := s.tells.Load()
				results, err := g.Settle(t.Context(), algorithms.Charge{Result: r, Cost: cost})
				if err != nil || results[0].Charged != cost || results[0].Remaining != r.Remaining+1-cost || s.tells.Load() != tells {
					t.Errorf("%+v, %v", results, err)
				}
				pause()
				if n := s.used(t, hot); n != before+cost {
					t.Errorf("%d counted, want %d", n, before+cost)
				}
			}
		},
		"are settled in the store after Close": func(t *testing.T, g *Guard, s *toldStore) {
			r := taken(t, g, hot).Results[0]
			_ = g.Close()
			before := s.used(t, hot)
			results, err := g.Settle(t.Context(), algorithms.Charge{Result: r, Cost: 31})
			if n := s.used(t, hot); err != nil || results[0].Charged != 31 || n != before+30 {
				t.Errorf("%+v, %v; %d counted, %d before", results, err, n, before)
			}
		},
		"are forgotten by Reset": func(t *testing.T, g *Guard, s *toldStore) {
			admits(t, g, 50, hot)
			if err := g.Reset(t.Context(), hot); err != nil {
				t.Fatal(err)
			}
			pause()
			if n := s.used(t, hot); n != 0 {
				t.Errorf("%d counted", n)
			}
		},
		"in an outage are the share, and are never told": func(t *testing.T, g *Guard, s *toldStore) {
			admits(t, g, 50, hot)
			s.away.Store(&errAway)
			by := admits(t, g, 1000, hot)
			time.Sleep(2 * hot.Sync)
			for range 3 {
				for from, n := range admits(t, g, 10_000, hot) {
					by[from] += n
				}
				time.Sleep(time.Second)
			}
			if share := 10_000 / 2; by[algorithms.SourceFallback] > share || by[algorithms.SourceSync] > 1000/2 {
				t.Errorf("%v", by)
			}
			s.away.Store(nil)
			time.Sleep(10 * time.Second)
			if n := s.used(t, hot); n > 2 {
				t.Errorf("%d counted after the outage", n)
			}
			admits(t, g, 1, hot)
			if by := admits(t, g, 1, hot); by[algorithms.SourceSync] != 1 {
				t.Errorf("after the outage: %v", by)
			}
		},
		"are counted here, too": func(t *testing.T, g *Guard, _ *toldStore) {
			admits(t, g, 50, hot)
			pause()
			if n := 5000 - remaining(t, &g.local, g.shareOfCheck(hot)); n != 51 {
				t.Errorf("%d used by local counting, want 51", n)
			}
		},
		"by another limit ask": func(t *testing.T, g *Guard, _ *toldStore) {
			lower := hot
			lower.Limit.Rate = 5000
			if by := admits(t, g, 1, lower); by[algorithms.SourceRedis] != 1 {
				t.Errorf("%v", by)
			}
			pause()
			warm(t, g, lower)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := new(toldStore)
				g := s.process(2)
				defer func() { _ = g.Close() }()
				taken(t, g, hot) // a copy
				f(t, g, s)
			})
		})
	}
}

// A flood of keys takes no copy of a key that is in use, and costs one command for 200 keys.
func TestSyncInAFloodOfKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(toldStore)
		g := s.process(1)
		defer func() { _ = g.Close() }()
		hot, cold := hotCheck(1_000_000, time.Minute, algorithms.SlidingWindow), hotCheck(1000, time.Minute, algorithms.SlidingWindow)
		taken(t, g, hot)
		const keys = 50_000
		begun, requests, copied := time.Now(), int64(0), 0
		for i := range 4 * keys {
			cold.Key = fmt.Sprint(i % keys)
			taken(t, g, cold)
			copied += admits(t, g, 1, cold)[algorithms.SourceSync]
			requests += 2
			if i%100 == 0 {
				if by := admits(t, g, 1, hot); by[algorithms.SourceSync] != 1 {
					t.Fatalf("after %d keys: %v", i, by)
				}
				time.Sleep(time.Millisecond)
			}
		}
		elapsed := time.Since(begun)
		_ = g.Close()
		if n, most := s.tells.Load(), int64(elapsed/(10*time.Millisecond))+int64(copied)/maxTold+100; s.largest.Load() > maxTold || n > most || copied == 0 {
			t.Errorf("%d commands of up to %d counts in %s, want at most %d of 200; %d of %d requests by copies", n, s.largest.Load(), elapsed, most, copied, requests)
		}
	})
}

const maxTold = 200

// Two processes that close while requests come, to a store that is slow, leave counted what
// they have admitted.
func TestClosingUnderLoadLosesNoUnit(t *testing.T) {
	for _, s := range []*toldStore{{}, {distant: distant{there: 2 * time.Millisecond, back: time.Millisecond}}, {distant: distant{settles: 200 * time.Millisecond}}} {
		t.Run(fmt.Sprint(s.there, " there, ", s.settles, " to settle"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const keys = 10
				checks, admitted := make([]algorithms.Check, keys), make([]atomic.Int64, keys)
				for i := range checks {
					checks[i] = hotCheck(1_000_000, 24*time.Hour, algorithms.FixedWindow)
					checks[i].Key = fmt.Sprint(i)
				}
				var all sync.WaitGroup
				var byCopies atomic.Int64
				closing := time.Now().Add(500 * time.Millisecond)
				for i, g := range []*Guard{s.process(2), s.process(2)} {
					for j := range 4 * keys {
						all.Go(func() {
							for time.Since(closing) < time.Second/2 {
								r := taken(t, g, checks[j%keys]).Results[0]
								if admitted[j%keys].Add(r.Charged); r.Source == algorithms.SourceSync {
									byCopies.Add(1)
									if j%2 == 0 {
										results, err := g.Settle(t.Context(), algorithms.Charge{Result: r, Cost: int64(j % 5)})
										if err != nil {
											t.Error(err)
										}
										admitted[j%keys].Add(results[0].Charged - 1)
									}
								}
								time.Sleep(time.Duration(1+(i+j)%3) * time.Millisecond)
							}
						})
					}
					all.Go(func() {
						time.Sleep(time.Until(closing))
						_ = g.Close()
					})
				}
				all.Wait()
				if byCopies.Load() == 0 {
					t.Error("nothing was admitted by copies")
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
