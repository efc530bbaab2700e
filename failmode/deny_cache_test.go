package failmode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// A distant store is a Memory to which a question takes a while, and an answer.
type distant struct {
	algorithms.Memory
	fake
	there, back time.Duration
	asked       atomic.Int64
	away        atomic.Pointer[error]
	patience    time.Duration
}

func (s *distant) Budget() time.Duration {
	if s.patience > 0 {
		return s.patience
	}
	return time.Hour
}

func (s *distant) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	s.asked.Add(1)
	time.Sleep(s.there)
	if err := s.away.Load(); err != nil {
		time.Sleep(s.back)
		return algorithms.Decision{}, *err
	}
	d, err := s.Memory.Take(ctx, checks...)
	for i := range d.Results {
		d.Results[i].Source = algorithms.SourceRedis
	}
	time.Sleep(s.back)
	return d, err
}

func (s *distant) Probe(context.Context, int) error {
	if err := s.away.Load(); err != nil {
		return *err
	}
	return nil
}

func (s *distant) Settle(ctx context.Context, charges ...algorithms.Charge) ([]algorithms.Result, error) {
	return settleRedis(ctx, &s.Memory, charges)
}

// bubble runs a test in fake time with a Guard over a distant store.
func bubble(t *testing.T, s *distant, f func(t *testing.T, g *Guard)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g := &Guard{Limiter: s, Instances: 1, Logger: slog.New(slog.DiscardHandler), store: s}
		defer func() { _ = g.Close() }()
		f(t, g)
	})
}

func limitsOf(rate int64, period time.Duration) (limits []algorithms.Limit) {
	for _, a := range []algorithms.Algorithm{algorithms.FixedWindow, algorithms.SlidingWindow, algorithms.SlidingLog, algorithms.TokenBucket, algorithms.GCRA} {
		limits = append(limits, algorithms.Limit{Rate: rate, Period: period, Algorithm: a})
	}
	return append(limits, algorithms.Limit{Rate: rate, Period: period, Burst: rate, Algorithm: algorithms.LeakyBucket})
}

// Many connections on one key, for three windows: the store is asked for
// what it admits, by those that were under way when it first denied, and once a
// second. A sliding_log, which does not say its state, is asked once more for each
// request that it admits.
func TestFloodAsksForWhatIsAdmitted(t *testing.T) {
	const callers, rate, length = 200, 50, 30 * time.Second
	for _, l := range limitsOf(rate, 10*time.Second) {
		t.Run(string(l.Algorithm), func(t *testing.T) {
			s := &distant{there: 3 * time.Millisecond, back: 2 * time.Millisecond}
			bubble(t, s, func(t *testing.T, g *Guard) {
				var admitted, denied atomic.Int64
				var all sync.WaitGroup
				end := time.Now().Add(length)
				for i := range callers {
					all.Go(func() {
						time.Sleep(time.Duration(i) * 97 * time.Microsecond)
						for time.Now().Before(end) {
							if taken(t, g, algorithms.Check{Rule: "r", Key: "flood", Limit: l}).Allowed {
								admitted.Add(1)
							} else {
								denied.Add(1)
							}
							time.Sleep(100 * time.Millisecond)
						}
					})
				}
				all.Wait()
				most := admitted.Load() + 1 + callers + int64(length/time.Second)
				if l.Algorithm == algorithms.SlidingLog {
					most += admitted.Load()
				}
				t.Logf("%d commands for %d admitted and %d denied", s.asked.Load(), admitted.Load(), denied.Load())
				if n := s.asked.Load(); n > most || n > 2*admitted.Load()+callers/5 {
					t.Errorf("%d commands for %d admitted, want at most %d", n, admitted.Load(), most)
				}
				if n := admitted.Load(); n < 5*rate/2 || n > 5*rate {
					t.Errorf("%d admitted in three periods of %d", n, rate)
				}
				if n := denied.Load(); n < callers*290 {
					t.Errorf("only %d denied: somebody waited", n)
				}
			})
		})
	}
}

// Whoever comes again after its RetryAfter is admitted, and whoever comes earlier
// by more than a round trip is not, however late in an entry's life it asked.
func TestRetryAfterFromTheCacheIsRight(t *testing.T) {
	for _, l := range limitsOf(5, 20*time.Second) {
		t.Run(string(l.Algorithm), func(t *testing.T) {
			s := &distant{there: 30 * time.Millisecond, back: 10 * time.Millisecond}
			bubble(t, s, func(t *testing.T, g *Guard) {
				c := algorithms.Check{Rule: "r", Key: "k", Limit: l}
				random := rand.New(rand.NewPCG(1, 2))
				cached := 0
				for range 200 {
					d := taken(t, g, c)
					if d.Allowed {
						continue
					}
					time.Sleep(time.Duration(random.Int64N(int64(d.RetryAfter()))) / 2)
					if d = taken(t, g, c); d.Results[0].Source == algorithms.SourceRedis { // it looked again
						d = taken(t, g, c)
					}
					if d.Allowed {
						t.Fatalf("before its time: %+v", d)
					}
					if d.Results[0].Source == algorithms.SourceDenyCache {
						cached++
					}
					truth, err := s.Peek(t.Context(), c)
					if err != nil || truth.Allowed {
						t.Fatalf("denied %+v, and the store has room: %+v", d, truth)
					}
					r, want := d.Results[0], truth.Results[0]
					if off := r.RetryAfter - want.RetryAfter; off < 0 || off > s.there+s.back {
						t.Fatalf("RetryAfter %s, by the store %s", r.RetryAfter, want.RetryAfter)
					}
					if r.At.Add(r.ResetAfter) != want.At.Add(want.ResetAfter) || r.Remaining != want.Remaining {
						t.Fatalf("told %+v, by the store %+v", r, want)
					}
					time.Sleep(d.RetryAfter())
					if d := taken(t, g, c); !d.Allowed {
						t.Fatalf("after its time: %+v", d)
					}
				}
				if cached < 25 {
					t.Errorf("%d of 200 from the cache", cached)
				}
			})
		})
	}
}

// With the cache and without it the same requests are admitted, whatever their
// limits, costs and patience, and whoever else charges, settles or resets. What
// another process gives back is noticed within a second.
func TestCacheChangesNoDecision(t *testing.T) {
	t.Parallel()
	hits := 0
	for seed := range uint64(60) {
		s := new(distant)
		bubble(t, s, func(t *testing.T, g *Guard) {
			random := rand.New(rand.NewPCG(seed, 7))
			plain := new(algorithms.Memory)
			checks := func() (cs []algorithms.Check) {
				for rule := range 3 {
					if random.IntN(2) == 0 {
						continue
					}
					l := limitsOf(4+2*random.Int64N(3), 10*time.Second)[(int(seed)+rule)%6] // tiers: several limits on a key
					c := algorithms.Check{
						Rule: fmt.Sprint("rule-", rule), Key: fmt.Sprint(random.IntN(2)), Limit: l,
						Cost: random.Int64N(4), Shadow: random.IntN(8) == 0, NoCache: random.IntN(8) == 0,
					}
					if c.Cost == 3 && random.IntN(4) == 0 {
						c.Cost = 11 // never
					}
					if l.Burst > 0 && random.IntN(2) == 0 {
						c.MaxDelay = time.Duration(1+random.Int64N(9)) * time.Second
					}
					cs = append(cs, c)
				}
				return cs
			}
			for step := range 400 {
				cs := checks()
				switch random.IntN(20) {
				case 0: // another process charges
					for _, m := range []algorithms.Limiter{&s.Memory, plain} {
						taken(t, m, cs...)
					}
					continue
				case 1:
					for _, l := range []algorithms.Limiter{g, plain} {
						if err := l.Reset(t.Context(), cs...); err != nil {
							t.Fatal(err)
						}
					}
					continue
				}
				got, want := taken(t, g, cs...), taken(t, plain, cs...)
				if got.Allowed != want.Allowed || len(got.Results) != len(want.Results) {
					t.Fatalf("seed %d, step %d:\n got %+v\nwant %+v", seed, step, got, want)
				}
				for i := range got.Results {
					r, w := got.Results[i], want.Results[i]
					switch r.Source {
					case "":
						if want.Allowed || r.Err != nil || r.Charged != 0 || r.Denies() {
							t.Fatalf("skipped: %+v", r)
						}
					case algorithms.SourceDenyCache:
						hits++
						if w.Allowed || r.Check != w.Check || r.RetryAfter > w.RetryAfter || r.Check.Shadow || r.Check.NoCache {
							t.Fatalf("seed %d, step %d:\n got %+v\nwant %+v", seed, step, r, w)
						}
					default:
						if r.Allowed != w.Allowed || r.Charged != w.Charged || r.Remaining != w.Remaining || r.RetryAfter != w.RetryAfter {
							t.Fatalf("seed %d, step %d:\n got %+v\nwant %+v", seed, step, r, w)
						}
					}
				}
				if random.IntN(10) == 0 && got.Allowed {
					cost := random.Int64N(3)
					if err := errors.Join(settleAll(t.Context(), g, cost, got.Results...), settleAll(t.Context(), plain, cost, want.Results...)); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(time.Duration(random.Int64N(int64(time.Second))).Truncate(time.Microsecond))
			}
		})
	}
	if hits < 1000 {
		t.Errorf("only %d answers from the cache", hits)
	}
}

// What another process frees is noticed within a second, at the price of a
// command a second.
func TestWhatOthersFreeIsNoticedWithinASecond(t *testing.T) {
	for _, l := range limitsOf(3, time.Hour) {
		s := new(distant)
		bubble(t, s, func(t *testing.T, g *Guard) {
			c := algorithms.Check{Rule: "r", Key: "k", Limit: l}
			for taken(t, g, c).Allowed {
			}
			time.Sleep(1234 * time.Millisecond)
			asked := s.asked.Load()
			if err := s.Reset(t.Context(), c); err != nil { // behind the Guard's back
				t.Fatal(err)
			}
			begun := time.Now()
			for !taken(t, g, c).Allowed {
				time.Sleep(10 * time.Millisecond)
			}
			if after := time.Since(begun); after > time.Second || s.asked.Load() > asked+2 {
				t.Errorf("%s: noticed after %s and %d commands", l.Algorithm, after, s.asked.Load()-asked)
			}
		})
	}
}

// So it is where several rules deny a request, and where requests that one rule
// alone denies flood the other's key.
func TestWhatOthersFreeIsNoticedBesideOtherDenials(t *testing.T) {
	ip, login := check("ip", 1, Local), check("login", 1, Local)
	ip.Limit.Period, login.Limit.Period = time.Hour, time.Hour
	scene := func(name string, reset []algorithms.Check, flood func(t *testing.T, g *Guard)) {
		t.Run(name, func(t *testing.T) {
			s := new(distant)
			bubble(t, s, func(t *testing.T, g *Guard) {
				for range 2 {
					taken(t, g, ip, login)
				}
				if err := s.Reset(t.Context(), reset...); err != nil { // behind the Guard's back
					t.Fatal(err)
				}
				begun := time.Now()
				for !taken(t, g, reset...).Allowed {
					if time.Since(begun) > 3*time.Second {
						t.Fatal("not noticed")
					}
					time.Sleep(10 * time.Millisecond)
					flood(t, g)
				}
			})
		})
	}
	scene("both are free", []algorithms.Check{ip, login}, func(*testing.T, *Guard) {})
	scene("one is free, and requests that both deny come in between", []algorithms.Check{ip}, func(t *testing.T, g *Guard) {
		taken(t, g, login) // has the second look at its key
		taken(t, g, ip, login)
	})
}

// In a flood on many keys the looks at keys that are denied are bounded, too.
func TestLooksAreBounded(t *testing.T) {
	s := new(distant)
	bubble(t, s, func(t *testing.T, g *Guard) {
		checks := make([]algorithms.Check, 1000)
		for i := range checks {
			checks[i] = check("r", 1, Local)
			checks[i].Key = fmt.Sprint(i)
			for taken(t, g, checks[i]).Allowed {
			}
		}
		asked := s.asked.Load()
		for range 200 {
			for i := range checks {
				taken(t, g, checks[i])
			}
			time.Sleep(20 * time.Millisecond)
		}
		if n := s.asked.Load() - asked; n > 4*int64(time.Second/secondLooks) || n < 100 {
			t.Errorf("%d commands in 4 s", n)
		}
	})
}

// Others wait for those who ask for the room that there is. They are not denied
// if it stays free, and not if nobody is answered.
func TestWaitingForTheRoomThereIs(t *testing.T) {
	scene := func(t *testing.T, f func(t *testing.T, g *Guard, s *distant, c, other algorithms.Check)) {
		s := &distant{there: 20 * time.Millisecond, back: 20 * time.Millisecond}
		bubble(t, s, func(t *testing.T, g *Guard) {
			c := algorithms.Check{Rule: "r", Key: "k", Limit: algorithms.Limit{Rate: 1, Period: time.Minute, Algorithm: algorithms.FixedWindow}}
			other := algorithms.Check{Rule: "full", Key: "k", Limit: algorithms.PerHour(1)}
			for taken(t, &s.Memory, other).Allowed {
			}
			for taken(t, g, c).Allowed {
			}
			time.Sleep(time.Minute - time.Duration(time.Now().UnixNano())%time.Minute)
			f(t, g, s, c, other)
		})
	}
	together := func(t *testing.T, l algorithms.Limiter, n int, c algorithms.Check) (admitted int64, results []algorithms.Result) {
		var all sync.WaitGroup
		var mu sync.Mutex
		for range n {
			all.Go(func() {
				d := taken(t, l, c)
				mu.Lock()
				defer mu.Unlock()
				if results = append(results, d.Results...); d.Allowed {
					admitted++
				}
			})
		}
		all.Wait()
		return admitted, results
	}

	t.Run("one is admitted", func(t *testing.T) {
		scene(t, func(t *testing.T, g *Guard, s *distant, c, _ algorithms.Check) {
			asked := s.asked.Load()
			if n, _ := together(t, g, 100, c); n != 1 || s.asked.Load() != asked+1 {
				t.Errorf("%d admitted by %d commands", n, s.asked.Load()-asked)
			}
		})
	})
	t.Run("the one that asks is denied by another rule", func(t *testing.T) {
		scene(t, func(t *testing.T, g *Guard, _ *distant, c, other algorithms.Check) {
			var first sync.WaitGroup
			first.Go(func() { taken(t, g, c, other) })
			synctest.Wait()
			if n, _ := together(t, g, 10, c); n != 1 {
				t.Errorf("%d of those that waited were admitted, want 1", n)
			}
			first.Wait()
		})
	})
	t.Run("the one that asks gets no answer", func(t *testing.T) {
		scene(t, func(t *testing.T, g *Guard, s *distant, c, _ algorithms.Check) {
			c.Fail = Closed
			s.away.Store(new(fmt.Errorf("no answer: %w", context.DeadlineExceeded)))
			begun := time.Now()
			n, results := together(t, g, 100, c)
			if took := time.Since(begun); n != 1 || took > s.there+s.back {
				t.Errorf("%d admitted after %s, want the share of 1", n, took)
			}
			for _, r := range results {
				if r.Source != algorithms.SourceFallback {
					t.Fatalf("busy is no outage: %+v", r)
				}
			}
		})
	})
	t.Run("the one that asks panics", func(t *testing.T) {
		scene(t, func(t *testing.T, g *Guard, s *distant, c, _ algorithms.Check) {
			g.Limiter = panicking{s}
			func() {
				defer func() { _ = recover() }()
				_, _ = g.Take(t.Context(), c)
			}()
			g.Limiter = s
			if n, _ := together(t, g, 10, c); n != 1 {
				t.Errorf("%d admitted, want 1", n)
			}
		})
	})
	t.Run("nobody waits longer than a budget", func(t *testing.T) {
		scene(t, func(t *testing.T, g *Guard, s *distant, c, _ algorithms.Check) {
			s.patience = 30 * time.Millisecond
			begun := time.Now()
			var first sync.WaitGroup
			first.Go(func() { taken(t, g, c) })
			synctest.Wait()
			d := taken(t, g, c)
			if took := time.Since(begun); took != s.patience || d.Allowed || d.Results[0].RetryAfter <= 0 {
				t.Errorf("after %s: %+v", took, d)
			}
			first.Wait()
		})
	})
	t.Run("a reset frees all", func(t *testing.T) {
		scene(t, func(t *testing.T, g *Guard, _ *distant, c, _ algorithms.Check) {
			var first sync.WaitGroup
			first.Go(func() { taken(t, g, c) })
			first.Go(func() {
				time.Sleep(time.Millisecond)
				if err := g.Reset(t.Context(), c); err != nil {
					t.Error(err)
				}
			})
			begun := time.Now()
			synctest.Wait()
			together(t, g, 3, c)
			if took := time.Since(begun); took != 41*time.Millisecond {
				t.Errorf("asked only after %s", took-40*time.Millisecond)
			}
			first.Wait()
		})
	})
}

type panicking struct{ *distant }

func (panicking) Take(context.Context, ...algorithms.Check) (algorithms.Decision, error) {
	panic("a limiter of the user's own")
}

// An answer that was sent before a reset is from before it.
func TestAnswersFromBeforeAResetAreNotKept(t *testing.T) {
	for what, end := range map[string]func(g *Guard, c algorithms.Check, charged algorithms.Result) error{
		"Reset": func(g *Guard, c algorithms.Check, _ algorithms.Result) error { return g.Reset(context.Background(), c) },
		"Settle": func(g *Guard, _ algorithms.Check, charged algorithms.Result) error {
			return settleAll(context.Background(), g, 0, charged)
		},
	} {
		s := &distant{there: time.Millisecond, back: 10 * time.Millisecond}
		bubble(t, s, func(t *testing.T, g *Guard) {
			c := check("r", 1, Local)
			charged := taken(t, g, c).Results[0]
			var late sync.WaitGroup
			late.Go(func() { taken(t, g, c) }) // denied, and the answer takes 10 ms
			time.Sleep(5 * time.Millisecond)
			if err := end(g, c, charged); err != nil {
				t.Fatal(err)
			}
			late.Wait()
			if d := taken(t, g, c); !d.Allowed {
				t.Errorf("after a %s: %+v", what, d)
			}
		})
	}
}

// Of answers that overtake each other, the one that the store gave last counts.
func TestTheNewerAnswerCounts(t *testing.T) {
	d := new(denyCache)
	d.begin(func(*algorithms.Check) bool { return false })
	c := algorithms.Check{Rule: "r", Key: "k", Limit: algorithms.Limit{Rate: 2, Period: time.Hour, Algorithm: algorithms.FixedWindow}}
	m := new(algorithms.Memory)
	sent := d.sending()
	first := taken(t, m, c).Results[0]
	taken(t, m, c)
	last := taken(t, m, c).Results[0]
	for _, r := range []*algorithms.Result{&last, &first} { // the first comes last
		d.learn(sent, new(lookup), r)
		l := d.look(&c, d.now())
		if l.outcome != mustNot {
			t.Errorf("%+v", l)
		}
		first.Check.NoCache = true // so that it is looked at although it was admitted
	}
	d.forget(&c, false)
	if l := d.look(&c, d.now()); l.entry != nil {
		t.Errorf("%+v", l)
	}
}

// However many keys are denied, the table stays as large as it is.
func TestCacheIsBounded(t *testing.T) {
	d := new(denyCache)
	d.begin(func(*algorithms.Check) bool { return false })
	c := check("r", 1, Local)
	m := new(algorithms.Memory)
	taken(t, m, c)
	r := taken(t, m, c).Results[0]
	for i := range 100_000 {
		r.Check.Key = fmt.Sprint(i)
		d.learn(d.sending(), new(lookup), &r)
	}
	n := 0
	for i := range d.sets {
		s := &d.sets[i]
		n += s.used
		for _, h := range s.hashes[:s.used] {
			if !d.mayKnow(h) {
				t.Fatal("there is an entry that no look finds")
			}
		}
		for s.used > 0 {
			s.remove(s.entries[0])
		}
		if d.signs[i].Load() != 0 {
			t.Fatal("a set without entries has signs of some")
		}
	}
	if n > denySets*denyInSet || n < denySets*denyInSet*9/10 {
		t.Errorf("%d entries", n)
	}
}

// All known denials are told, and what nobody decided has no count.
func TestEveryKnownDenialIsTold(t *testing.T) {
	s := new(distant)
	bubble(t, s, func(t *testing.T, g *Guard) {
		short := algorithms.Check{Rule: "short", Limit: algorithms.Limit{Rate: 1, Period: time.Minute, Algorithm: algorithms.FixedWindow}}
		long := algorithms.Check{Rule: "long", Limit: algorithms.Limit{Rate: 1, Period: time.Hour, Algorithm: algorithms.FixedWindow}}
		well := algorithms.Check{Rule: "well", Limit: algorithms.PerMinute(100)}
		taken(t, g, short, long)
		taken(t, g, short, long)
		asked := s.asked.Load()
		d := taken(t, g, well, short, long)
		if d.Allowed || s.asked.Load() != asked || d.RetryAfter() != d.Results[2].RetryAfter || !d.Results[1].Denies() {
			t.Errorf("%+v", d)
		}
		if r := d.Results[0]; r.Check != well || r.Source != "" || r.Denies() || r.Err != nil || r.Charged != 0 {
			t.Errorf("%+v", r)
		}
		if tightest, ok := d.Tightest(); !ok || tightest.Check.Rule == "well" {
			t.Errorf("%+v", tightest)
		}
		p, err := g.Peek(t.Context(), well, short, long)
		if err != nil || p.Results[0].Remaining != 100 || p.Results[1].Source != algorithms.SourceRedis && p.Results[1].Source != algorithms.SourceMemory {
			t.Errorf("Peek asks: %+v, %v", p, err)
		}
		if _, err := g.Take(t.Context(), short, algorithms.Check{Rule: "wrong"}); !errors.Is(err, algorithms.ErrInvalidCheck) {
			t.Errorf("an invalid check beside one that is denied: %v", err)
		}
	})
}

// Denials of a rule with a ban are asked for, since each counts. The ban itself is
// known for a second, and in an outage until it ends.
func TestBansAreKnownForASecond(t *testing.T) {
	s := new(distant)
	bubble(t, s, func(t *testing.T, g *Guard) {
		c := check("login", 1, Open)
		c.Ban = algorithms.Ban{After: 3, For: 4 * time.Hour}
		for range 4 { // one is admitted, the third denial bans
			taken(t, g, c)
		}
		asked := s.asked.Load()
		if asked != 4 {
			t.Errorf("asked %d times, want for each denial that counts", asked)
		}
		for range 5 {
			if r := taken(t, g, c).Results[0]; !r.Banned || r.Allowed || r.Source != algorithms.SourceDenyCache || r.RetryAfter != 4*time.Hour {
				t.Errorf("%+v", r)
			}
		}
		if n := s.asked.Load(); n != asked {
			t.Errorf("asked %d times during the ban's first second", n-asked)
		}
		time.Sleep(time.Second)
		if r := taken(t, g, c).Results[0]; !r.Banned || s.asked.Load() != asked+1 {
			t.Errorf("%+v after %d questions", r, s.asked.Load()-asked)
		}
		time.Sleep(time.Second)
		if err := s.Memory.Ban(t.Context(), 0, c); err != nil { // through another process
			t.Fatal(err)
		}
		if r := taken(t, g, c).Results[0]; r.Banned || r.Allowed {
			t.Errorf("lifted: %+v", r)
		}
		for range 3 {
			taken(t, g, c)
		}
		s.away.Store(&errAway)
		time.Sleep(10 * time.Minute)
		if r := taken(t, g, c).Results[0]; !r.Banned || r.Allowed || r.RetryAfter != 4*time.Hour-10*time.Minute {
			t.Errorf("in an outage: %+v", r)
		}
		s.away.Store(nil)
		if err := g.Ban(t.Context(), 0, c); err != nil {
			t.Fatal(err)
		}
		if r := taken(t, g, c).Results[0]; r.Banned {
			t.Errorf("lifted here: %+v", r)
		}
	})
}

// More requests at once than the limit has room for, when all of it is free again.
func TestFloodOnceAllIsFree(t *testing.T) {
	for _, l := range limitsOf(5, 10*time.Second) {
		t.Run(string(l.Algorithm), func(t *testing.T) {
			s := &distant{there: 3 * time.Millisecond, back: 2 * time.Millisecond}
			bubble(t, s, func(t *testing.T, g *Guard) {
				c := algorithms.Check{Rule: "r", Key: "flood", Limit: l}
				for taken(t, g, c).Allowed {
				}
				time.Sleep(time.Minute)
				var admitted atomic.Int64
				var all sync.WaitGroup
				for range 100 {
					all.Go(func() {
						if taken(t, g, c).Allowed {
							admitted.Add(1)
						}
					})
				}
				all.Wait()
				if n := admitted.Load(); n != 5 {
					t.Errorf("%d admitted", n)
				}
			})
		})
	}
}

// Any rule's keys can be banned by hand. A flood then costs as little as one on a
// rule with a ban.
func TestBansByHandAreKnownForASecond(t *testing.T) {
	s := &distant{there: time.Millisecond, patience: 50 * time.Millisecond}
	bubble(t, s, func(t *testing.T, g *Guard) {
		c := check("plain", 5, Local)
		if err := g.Ban(t.Context(), 4*time.Hour, c); err != nil {
			t.Fatal(err)
		}
		taken(t, g, c)
		asked := s.asked.Load()
		var all sync.WaitGroup
		for range 300 {
			all.Go(func() {
				if r := taken(t, g, c).Results[0]; !r.Banned || r.Allowed || r.RetryAfter < 3*time.Hour {
					t.Errorf("%+v", r)
				}
			})
		}
		all.Wait()
		if n := s.asked.Load() - asked; n > 0 {
			t.Errorf("asked %d times during the ban's first second", n)
		}
		time.Sleep(time.Second)
		if err := s.Memory.Ban(t.Context(), 0, c); err != nil { // through another process
			t.Fatal(err)
		}
		if r := taken(t, g, c).Results[0]; r.Banned || !r.Allowed {
			t.Errorf("lifted: %+v", r)
		}
		c.Ban = algorithms.Ban{After: 1, For: time.Hour}
		for range 6 {
			taken(t, g, c)
		}
		if r := taken(t, g, c).Results[0]; !r.Banned {
			t.Errorf("%+v", r)
		}
		c.Ban = algorithms.Ban{}
		if r := taken(t, g, c).Results[0]; r.Banned {
			t.Errorf("a rule without a ban: %+v", r)
		}
	})
}
