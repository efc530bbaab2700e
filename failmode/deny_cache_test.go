package failmode

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/rated"
)

// bubble runs a test in fake time with a Guard over a distant store.
func bubble(t *testing.T, s *distant, f func(t *testing.T, g *Guard)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g := join(s, 1)
		defer func() { _ = g.Close() }()
		f(t, g)
	})
}

func limitsOf(rate int64, period time.Duration) (limits []algorithms.Limit) {
	for _, row := range rated.Rows {
		l := algorithms.Limit{Rate: rate, Period: period, Algorithm: algorithms.Algorithm(row.Name)}
		if row.Queue {
			l.Burst = rate
		}
		limits = append(limits, l)
	}
	return limits
}

// eachAlgorithm runs a test of the cache in fake time for each algorithm, with two
// processes over a store to which a question takes so long, and an answer.
func eachAlgorithm(t *testing.T, there, back time.Duration, rate int64, period time.Duration, f func(t *testing.T, s *distant, g, other *Guard, l algorithms.Limit)) {
	t.Helper()
	for _, l := range limitsOf(rate, period) {
		t.Run(string(l.Algorithm), func(t *testing.T) {
			s := &distant{there: there, back: back}
			bubble(t, s, func(t *testing.T, g *Guard) {
				other := join(s, 1)
				defer func() { _ = other.Close() }()
				f(t, s, g, other, l)
			})
		})
	}
}

// Many connections on one key, for three windows: the store is asked for
// what it admits, by those that were under way when it first denied, and by each
// process once a second. Each process asks once more for what the other may have
// taken and, of a sliding_log, which does not say its state, for what it admits.
func TestFloodAsksForWhatIsAdmitted(t *testing.T) {
	const callers, rate, length = 200, 50, 30 * time.Second
	eachAlgorithm(t, 3*time.Millisecond, 2*time.Millisecond, rate, 10*time.Second, func(t *testing.T, s *distant, g, other *Guard, l algorithms.Limit) {
		var admitted, denied atomic.Int64
		var all sync.WaitGroup
		end := time.Now().Add(length)
		for i := range callers {
			g := []*Guard{g, other}[i%2]
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
		most := 2*admitted.Load() + 1 + callers + 2*int64(length/time.Second)
		t.Logf("%d commands for %d admitted and %d denied", s.asked.Load(), admitted.Load(), denied.Load())
		if n := s.asked.Load(); n > most || n > 2*admitted.Load()+callers/2 {
			t.Errorf("%d commands for %d admitted, want at most %d", n, admitted.Load(), most)
		}
		if n := admitted.Load(); n < 5*rate/2 || n > 5*rate {
			t.Errorf("%d admitted in three periods of %d", n, rate)
		}
		if n := denied.Load(); n < callers*290 {
			t.Errorf("only %d denied: somebody waited", n)
		}
	})
}

// Requests of many costs gain nothing: a denial of a cost is one of every higher cost.
func TestFloodOfManyCostsStaysHere(t *testing.T) {
	const rate = 100
	eachAlgorithm(t, 0, 0, rate, time.Hour, func(t *testing.T, s *distant, g, other *Guard, l algorithms.Limit) {
		c := algorithms.Check{Rule: "r", Key: "k", Limit: l}
		for range rate {
			taken(t, other, c)
		}
		taken(t, g, c)
		asked := s.asked.Load()
		for i := range int64(1000) {
			c.Cost = i*37%rate + 1
			if d := taken(t, g, c); d.Allowed {
				t.Fatalf("%+v", d)
			}
		}
		if n := s.asked.Load() - asked; n > 2*16 {
			t.Errorf("%d commands", n)
		}
	})
}

// Whoever comes again after its RetryAfter is admitted, and whoever comes earlier
// by more than a round trip is not, however late in an entry's life it asked.
func TestRetryAfterFromTheCacheIsRight(t *testing.T) {
	eachAlgorithm(t, 30*time.Millisecond, 10*time.Millisecond, 5, 20*time.Second, func(t *testing.T, s *distant, g, other *Guard, l algorithms.Limit) {
		c := algorithms.Check{Rule: "r", Key: "k", Limit: l}
		random := rand.New(rand.NewPCG(1, 2))
		cached := 0
		for range 200 {
			g := []*Guard{g, other}[random.IntN(2)]
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
}

// With the cache and without it the same requests are admitted, whatever their
// limits, costs and patience, and whichever process charges. A process that settles or
// resets notices it at once. Another one admits by it within a second, and may know
// of one check that denies for longer while another check denies as well.
func TestCacheChangesNoDecision(t *testing.T) {
	t.Parallel()
	hits := 0
	for seed := range uint64(100) {
		s := new(distant)
		bubble(t, s, func(t *testing.T, frees *Guard) {
			other := join(s, 1)
			defer func() { _ = other.Close() }()
			random := rand.New(rand.NewPCG(seed, 7))
			plain := new(algorithms.Memory)
			freed := time.Time{}
			checks := func() (cs []algorithms.Check) {
				for rule := range 3 {
					if random.IntN(2) == 0 {
						continue
					}
					l := limitsOf(4+2*random.Int64N(3), 10*time.Second)[(int(seed)+rule)%len(rated.Rows)] // tiers: several limits on a key
					c := algorithms.Check{
						Rule: fmt.Sprint("rule-", rule), Key: fmt.Sprint(random.IntN(2)), Limit: l,
						Cost: random.Int64N(4), Shadow: random.IntN(8) == 0,
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
			for step := range 500 {
				cs, g := checks(), []*Guard{frees, other}[random.IntN(2)]
				if random.IntN(100) == 0 {
					for _, l := range []algorithms.Limiter{frees, plain} {
						if err := l.Reset(t.Context(), cs...); err != nil {
							t.Fatal(err)
						}
					}
					freed = time.Now()
					continue
				}
				got := taken(t, g, cs...)
				if g == other && time.Since(freed) < time.Second && !got.Allowed {
					if would, err := plain.Peek(t.Context(), cs...); err != nil || would.Allowed {
						continue
					}
				}
				want := taken(t, plain, cs...)
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
						if g == frees && (w.HasRoom || r.RetryAfter > w.RetryAfter) || r.Check != w.Check || r.Check.Shadow {
							t.Fatalf("seed %d, step %d:\n got %+v\nwant %+v", seed, step, r, w)
						}
					default:
						if r.HasRoom != w.HasRoom || r.Charged != w.Charged || r.Remaining != w.Remaining || r.RetryAfter != w.RetryAfter {
							t.Fatalf("seed %d, step %d:\n got %+v\nwant %+v", seed, step, r, w)
						}
					}
				}
				if random.IntN(40) == 0 && got.Allowed {
					cost := random.Int64N(3)
					if err := errors.Join(settleAll(t.Context(), frees, cost, got.Results...), settleAll(t.Context(), plain, cost, want.Results...)); err != nil {
						t.Fatal(err)
					}
					freed = time.Now()
				}
				time.Sleep(time.Second/200 + time.Duration(random.Int64N(int64(time.Second)/5)).Truncate(time.Microsecond))
			}
		})
	}
	if hits < 1000 {
		t.Errorf("only %d answers from the cache", hits)
	}
}

// What another process frees is noticed where several rules deny a request, and where
// requests that one rule alone denies flood the other's key.
func TestWhatOthersFreeIsNoticedBesideOtherDenials(t *testing.T) {
	scene := func(name string, resets int, flood func(t *testing.T, g *Guard, ip, login algorithms.Check)) {
		t.Run(name, func(t *testing.T) {
			eachAlgorithm(t, 0, 0, 1, time.Hour, func(t *testing.T, _ *distant, g, other *Guard, l algorithms.Limit) {
				ip, login := algorithms.Check{Rule: "ip", Limit: l}, algorithms.Check{Rule: "login", Limit: l}
				for range 2 {
					taken(t, g, ip, login)
				}
				reset := []algorithms.Check{ip, login}[:resets]
				if err := other.Reset(t.Context(), reset...); err != nil {
					t.Fatal(err)
				}
				begun := time.Now()
				for !taken(t, g, reset...).Allowed {
					if time.Since(begun) > 3*time.Second {
						t.Fatal("not noticed")
					}
					time.Sleep(10 * time.Millisecond)
					flood(t, g, ip, login)
				}
			})
		})
	}
	scene("both are free", 2, func(*testing.T, *Guard, algorithms.Check, algorithms.Check) {})
	scene("one is free, and requests that both deny come in between", 1, func(t *testing.T, g *Guard, ip, login algorithms.Check) {
		taken(t, g, login) // has the second look at its key
		taken(t, g, ip, login)
	})
}

// In a flood on many keys each process bounds its looks at keys that are denied, too.
func TestLooksAreBounded(t *testing.T) {
	const keys, seconds = 1000, 2
	eachAlgorithm(t, 0, 0, 1, time.Hour, func(t *testing.T, s *distant, g, other *Guard, l algorithms.Limit) {
		guards := []*Guard{g, other}
		checks := make([]algorithms.Check, keys)
		for i := range checks {
			checks[i] = algorithms.Check{Rule: "r", Key: fmt.Sprint(i), Limit: l}
			taken(t, g, checks[i])
			taken(t, guards[i%2], checks[i])
		}
		asked := s.asked.Load()
		for i := range seconds * 50 * keys {
			taken(t, guards[i%2], checks[i%keys])
			time.Sleep(time.Second / 50 / keys)
		}
		if n := s.asked.Load() - asked; n > 2*200*seconds || n < 100 {
			t.Errorf("%d commands in %d s", n, seconds)
		}
	})
}

// Others wait for those who ask for the room that there is. They are not denied
// if it stays free, and not if nobody is answered.
func TestWaitingForTheRoomThereIs(t *testing.T) {
	scene := func(t *testing.T, f func(t *testing.T, g *Guard, s *distant, c, full algorithms.Check)) {
		eachAlgorithm(t, 20*time.Millisecond, 20*time.Millisecond, 1, time.Minute, func(t *testing.T, s *distant, g, other *Guard, l algorithms.Limit) {
			c := algorithms.Check{Rule: "r", Key: "k", Limit: l}
			full := algorithms.Check{Rule: "full", Key: "k", Limit: algorithms.PerHour(1)}
			for taken(t, &s.Memory, full).Allowed {
			}
			taken(t, other, c)
			taken(t, g, c)
			time.Sleep(2 * time.Minute)
			f(t, g, s, c, full)
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
			most := int64(1)
			if c.Limit.Algorithm == algorithms.SlidingLog {
				most++ // it does not say until when nothing is left
			}
			if n, _ := together(t, g, 100, c); n != 1 || s.asked.Load() > asked+most {
				t.Errorf("%d admitted by %d commands", n, s.asked.Load()-asked)
			}
		})
	})
	t.Run("the one that asks is denied by another rule", func(t *testing.T) {
		scene(t, func(t *testing.T, g *Guard, _ *distant, c, full algorithms.Check) {
			var first sync.WaitGroup
			first.Go(func() { taken(t, g, c, full) })
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
				defer func() {
					if recover() == nil {
						t.Error("no panic: a request's own goroutine is the server's to recover")
					}
				}()
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

// All known denials are told, and what nobody decided has no count.
func TestEveryKnownDenialIsTold(t *testing.T) {
	eachAlgorithm(t, 0, 0, 1, time.Minute, func(t *testing.T, s *distant, g, other *Guard, l algorithms.Limit) {
		short, long := algorithms.Check{Rule: "short", Limit: l}, algorithms.Check{Rule: "long", Limit: l}
		long.Limit.Period = time.Hour
		well := algorithms.Check{Rule: "well", Limit: algorithms.PerMinute(100)}
		taken(t, other, short, long)
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

// A flood of requests that cannot wait as long as the queue is stays in the process.
// Requests that can wait are not denied by that.
func TestImpatientRequestsAreKnown(t *testing.T) {
	s := new(distant)
	bubble(t, s, func(t *testing.T, g *Guard) {
		patient := algorithms.Check{Rule: "queue", Limit: algorithms.Limit{Rate: 60, Period: time.Hour, Burst: 5, Algorithm: algorithms.LeakyBucket}}
		impatient := patient
		impatient.MaxDelay = time.Second
		taken(t, g, patient)
		for range 100 {
			if d := taken(t, g, impatient); d.Allowed || d.Results[0].RetryAfter != 59*time.Second || d.Results[0].Remaining != 4 {
				t.Errorf("%+v", d)
			}
		}
		if d := taken(t, g, patient); !d.Allowed || d.Delay() != time.Minute || s.asked.Load() != 3 {
			t.Errorf("%+v; asked %d times", d, s.asked.Load())
		}
	})
}

// Denials of a rule with a ban are asked for, since each counts. The ban itself is
// known for a second, and in an outage until it ends.
func TestBansAreKnownForASecond(t *testing.T) {
	eachAlgorithm(t, 0, 0, 1, time.Hour, func(t *testing.T, s *distant, g, other *Guard, l algorithms.Limit) {
		c := algorithms.Check{Rule: "login", Key: "k", Limit: l, Fail: Open}
		c.Ban = algorithms.Ban{After: 3, For: 4 * time.Hour}
		for range 4 { // one is admitted, the third denial bans
			taken(t, g, c)
		}
		asked := s.asked.Load()
		if asked != 4 {
			t.Errorf("asked %d times, want for each denial that counts", asked)
		}
		for range 5 {
			if r := taken(t, g, c).Results[0]; r.BannedFor == 0 || r.HasRoom || r.Source != algorithms.SourceDenyCache || r.RetryAfter != 4*time.Hour {
				t.Errorf("%+v", r)
			}
		}
		if n := s.asked.Load(); n != asked {
			t.Errorf("asked %d times during the ban's first second", n-asked)
		}
		time.Sleep(time.Second)
		if r := taken(t, g, c).Results[0]; r.BannedFor == 0 || s.asked.Load() != asked+1 {
			t.Errorf("%+v after %d questions", r, s.asked.Load()-asked)
		}
		time.Sleep(time.Second)
		if err := other.Ban(t.Context(), 0, c); err != nil {
			t.Fatal(err)
		}
		if r := taken(t, g, c).Results[0]; r.BannedFor > 0 || r.HasRoom {
			t.Errorf("lifted: %+v", r)
		}
		for range 3 {
			taken(t, g, c)
		}
		s.away.Store(&errAway)
		time.Sleep(10 * time.Minute)
		if r := taken(t, g, c).Results[0]; r.BannedFor == 0 || r.HasRoom || r.RetryAfter != 4*time.Hour-10*time.Minute {
			t.Errorf("in an outage: %+v", r)
		}
		s.away.Store(nil)
		if err := g.Ban(t.Context(), 0, c); err != nil {
			t.Fatal(err)
		}
		if r := taken(t, g, c).Results[0]; r.BannedFor > 0 {
			t.Errorf("lifted here: %+v", r)
		}
	})
}

// Any rule's keys can be banned by hand. A flood then costs as little as one on a
// rule with a ban.
func TestBansByHandAreKnownForASecond(t *testing.T) {
	eachAlgorithm(t, time.Millisecond, 0, 5, time.Hour, func(t *testing.T, s *distant, g, other *Guard, l algorithms.Limit) {
		s.patience = 50 * time.Millisecond
		c := algorithms.Check{Rule: "plain", Key: "k", Limit: l}
		if err := g.Ban(t.Context(), 4*time.Hour, c); err != nil {
			t.Fatal(err)
		}
		taken(t, g, c)
		asked := s.asked.Load()
		var all sync.WaitGroup
		for range 300 {
			all.Go(func() {
				if r := taken(t, g, c).Results[0]; r.BannedFor == 0 || r.HasRoom || r.RetryAfter < 3*time.Hour {
					t.Errorf("%+v", r)
				}
			})
		}
		all.Wait()
		if n := s.asked.Load() - asked; n > 0 {
			t.Errorf("asked %d times during the ban's first second", n)
		}
		time.Sleep(time.Second)
		if err := other.Ban(t.Context(), 0, c); err != nil {
			t.Fatal(err)
		}
		if r := taken(t, g, c).Results[0]; r.BannedFor > 0 || !r.HasRoom {
			t.Errorf("lifted: %+v", r)
		}
		c.Ban = algorithms.Ban{After: 1, For: time.Hour}
		for range 6 {
			taken(t, g, c)
		}
		if r := taken(t, g, c).Results[0]; r.BannedFor == 0 {
			t.Errorf("%+v", r)
		}
		c.Ban = algorithms.Ban{}
		if r := taken(t, g, c).Results[0]; r.BannedFor > 0 {
			t.Errorf("a rule without a ban: %+v", r)
		}
	})
}
