package failmode

import (
	"errors"
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
		l := algorithms.Limit{Rate: rate, Period: period, Algorithm: algorithms.Algorithm(row.Number)}
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
		t.Run(l.Algorithm.String(), func(t *testing.T) {
			s := &distant{there: there, back: back}
			bubble(t, s, func(t *testing.T, g *Guard) {
				other := join(s, 1)
				defer func() { _ = other.Close() }()
				f(t, s, g, other, l)
			})
		})
	}
}

// Many connections on one key, for three windows: each process asks the store once a second,
// once when a denial has ended, and, if that was admitted, once more.
func TestAFloodStaysHere(t *testing.T) {
	const callers, rate, length = 200, 50, 30 * time.Second
	eachAlgorithm(t, 3*time.Millisecond, 2*time.Millisecond, rate, 10*time.Second, func(t *testing.T, s *distant, g, other *Guard, l algorithms.Limit) {
		var admitted, denied atomic.Int64
		var all sync.WaitGroup
		end := time.Now().Add(length)
		for i := range callers {
			g := []*Guard{g, other}[i%2]
			all.Go(func() {
				random := rand.New(rand.NewPCG(1, uint64(i))) // no two come at once
				for time.Now().Before(end) {
					if taken(t, g, algorithms.Check{Rule: "r", Key: "flood", Limit: l}).Allowed {
						admitted.Add(1)
					} else {
						denied.Add(1)
					}
					time.Sleep(time.Duration(random.Int64N(int64(200 * time.Millisecond))))
				}
			})
		}
		all.Wait()
		t.Logf("%d commands for %d admitted and %d denied", s.asked.Load(), admitted.Load(), denied.Load())
		if n, most := s.asked.Load(), 3*admitted.Load()+2*int64(length/time.Second)+callers/4; n > most {
			t.Errorf("%d commands for %d admitted, want at most %d", n, admitted.Load(), most)
		}
		if n := admitted.Load(); n < 5*rate/2 || n > 5*rate {
			t.Errorf("%d admitted in three periods of %d", n, rate)
		}
		if n := denied.Load(); n < callers*270 {
			t.Errorf("only %d denied: somebody waited", n)
		}
	})
}

// Asking one at a time loses next to nothing of a rate, even if it has many units in a round trip.
func TestAFloodIsServedTheWholeRate(t *testing.T) {
	for _, l := range []algorithms.Limit{
		{Rate: 2000, Period: time.Second, Burst: 2000},
		{Rate: 2000, Period: time.Second, Burst: 20},
		{Rate: 1000, Period: time.Second, Burst: 1},
		{Rate: 180, Period: time.Second, Burst: 1}, // somewhat longer than a round trip
		{Rate: 150, Period: time.Second, Burst: 10},
		{Rate: 20, Period: time.Second, Burst: 1},
	} {
		l.Algorithm = algorithms.TokenBucket
		served := func(guarded bool) (n int64) {
			s := &distant{there: 3 * time.Millisecond, back: 2 * time.Millisecond}
			bubble(t, s, func(t *testing.T, g *Guard) {
				var limiter algorithms.Limiter = s
				if guarded {
					limiter = g
				}
				var admitted atomic.Int64
				var all sync.WaitGroup
				end := time.Now().Add(4 * time.Second)
				for i := range 50 {
					all.Go(func() {
						random := rand.New(rand.NewPCG(1, uint64(i)))
						for time.Now().Before(end) {
							if d, err := limiter.Take(t.Context(), algorithms.Check{Rule: "r", Key: "flood", Limit: l}); err == nil && d.Allowed {
								admitted.Add(1)
							}
							time.Sleep(time.Duration(random.Int64N(int64(10 * time.Millisecond))))
						}
					})
				}
				all.Wait()
				n = admitted.Load()
			})
			return n
		}
		n, all := served(true), served(false)
		t.Logf("%d/s, burst %d: %d of %d", l.Rate, l.Burst, n, all)
		if n < all*9/10 {
			t.Errorf("%d/s, burst %d: %d of %d", l.Rate, l.Burst, n, all)
		}
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
		if r := d.Results[0]; r.Check != well || r.Source != algorithms.SourceNone || r.Denies() || r.Err != nil || r.Charged != 0 {
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
