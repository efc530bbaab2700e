package failmode_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
)

// divided runs a test with a store of two shards, of which shard 1 is away and
// its circuit open.
func divided(t *testing.T, f func(t *testing.T, l *failmode.Fallback, n *nodes)) {
	t.Helper()
	breaker(t, func(t *testing.T, b *failmode.Breaker, n *nodes, _ *logbook) {
		n.set(1, errAway, 0)
		askFor(b, 5, on(1))
		l := &failmode.Fallback{Next: b, Instances: 1}
		if err := l.Validate(); err != nil {
			t.Fatal(err)
		}
		f(t, l, n)
	})
}

func limited(shard int, rate int64, fail failmode.Mode) algorithms.Check {
	c := on(shard)
	c.Limit, c.Fail = algorithms.PerHour(rate), fail
	return c
}

func remaining(t *testing.T, l algorithms.Counter, c algorithms.Check) int64 {
	t.Helper()
	d, err := l.Peek(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return d.Results[0].Remaining
}

func TestRefusedChecksAreDecidedFirst(t *testing.T) {
	divided(t, func(t *testing.T, l *failmode.Fallback, n *nodes) {
		well, lost := limited(0, 100, failmode.Local), limited(1, 2, failmode.Local)
		for i, want := range []bool{true, true, false, false} {
			asked := n.asked[0].Load()
			d := take(t, l, well, lost)
			if d.Allowed != want {
				t.Errorf("request %d: %+v", i, d)
			}
			if want && (d.Results[0].Source != algorithms.SourceRedis || d.Results[1].Source != algorithms.SourceFallback) {
				t.Errorf("request %d: results out of order: %+v", i, d)
			}
			if sent := n.asked[0].Load() > asked; sent != want {
				t.Errorf("request %d: sent is %v", i, sent)
			}
		}
		if left := remaining(t, l, well); left != 98 {
			t.Errorf("a denial charged what was not asked: %d left", left)
		}
		asked := n.asked[0].Load()
		d := take(t, l, well, limited(1, 100, failmode.Closed))
		if d.Allowed || len(d.Results) != 1 || d.Results[0].Source != algorithms.SourceFailClosed || n.asked[0].Load() != asked {
			t.Errorf("a closed rule: %+v", d)
		}
		if d := take(t, l, limited(1, 1, failmode.Open), well); !d.Allowed || d.Results[0].Source != algorithms.SourceFailOpen || d.Results[1].Charged != 1 {
			t.Errorf("an open rule: %+v", d)
		}
	})
}

func TestADenialElsewhereGivesBackWhatWasCountedHere(t *testing.T) {
	divided(t, func(t *testing.T, l *failmode.Fallback, _ *nodes) {
		full, lost := limited(0, 1, failmode.Local), limited(1, 5, failmode.Local)
		if d := take(t, l, full, lost); !d.Allowed {
			t.Fatalf("%+v", d)
		}
		for range 10 {
			d := take(t, l, full, lost)
			if d.Allowed || d.Results[1].Charged != 0 || d.Results[1].Remaining != 4 {
				t.Errorf("%+v", d)
			}
		}
		if left := remaining(t, l, lost); left != 4 {
			t.Errorf("%d left, want 4", left)
		}
	})
}

func TestLocalCountingIsWarm(t *testing.T) {
	away := func(s *store, is bool) { s.away = map[string]bool{"": is} }
	quiet := slog.New(slog.DiscardHandler)

	t.Run("it has followed what was admitted and given back", func(t *testing.T) {
		s := new(store)
		f := &failmode.Fallback{Next: s, Logger: quiet}
		c := check("r", 5, failmode.Local)
		var last algorithms.Decision
		for range 4 {
			last = take(t, f, c)
		}
		if err := f.Settle(t.Context(), 0, last.Results...); err != nil {
			t.Fatal(err)
		}
		away(s, true)
		for i, want := range []bool{true, true, false} {
			if d := take(t, f, c); d.Allowed != want {
				t.Errorf("request %d of the outage: %+v", i, d)
			}
		}
	})
	t.Run("at this instance's share", func(t *testing.T) {
		s := new(store)
		f := &failmode.Fallback{Next: s, Instances: 4, Logger: quiet}
		c := check("r", 20, failmode.Local)
		for range 3 {
			take(t, f, c)
		}
		away(s, true)
		for i, want := range []bool{true, true, false} {
			if d := take(t, f, c); d.Allowed != want {
				t.Errorf("request %d of the outage: %+v", i, d)
			}
		}
	})
	t.Run("whom another instance made exhaust the limit stays denied", func(t *testing.T) {
		s := new(store)
		f := &failmode.Fallback{Next: s, Logger: quiet}
		c := check("r", 5, failmode.Local)
		for range 5 {
			take(t, s, c) // not through f
		}
		if d := take(t, f, c); d.Allowed {
			t.Fatalf("%+v", d)
		}
		away(s, true)
		if d := take(t, f, c); d.Allowed || d.Results[0].Source != algorithms.SourceFallback {
			t.Errorf("%+v", d)
		}
	})
	t.Run("no outage starts afresh", func(t *testing.T) {
		s := new(store)
		f := &failmode.Fallback{Next: s, Logger: quiet}
		c, admitted := check("r", 5, failmode.Local), 0
		for i := range 50 {
			if away(s, i%2 == 0); i%10 == 0 {
				_ = s.Memory.Reset(t.Context(), c) // Redis comes back empty
			}
			if d := take(t, f, c); d.Allowed && d.Results[0].Source == algorithms.SourceFallback {
				admitted++
			}
		}
		if admitted > 5 {
			t.Errorf("%d admitted here, in 25 outages", admitted)
		}
	})
}

// What was not charged here, because there was no room left, is not given back
// here either: else each outage would have a share of its own.
func TestGivingBackFreesNoShareThatWasUsed(t *testing.T) {
	for _, algorithm := range []algorithms.Algorithm{algorithms.FixedWindow, algorithms.SlidingWindow, algorithms.TokenBucket, algorithms.SlidingLog} {
		t.Run(string(algorithm), func(t *testing.T) {
			s := new(store)
			f := &failmode.Fallback{Next: s, Logger: slog.New(slog.DiscardHandler)}
			c := check("r", 10, failmode.Local)
			c.Limit.Algorithm = algorithm
			admitted := 0
			for range 3 {
				s.away = map[string]bool{"": true}
				for range 20 {
					if take(t, f, c).Allowed {
						admitted++
					}
				}
				s.away = nil
				for range 10 { // served by Redis, and given back
					d := take(t, f, c)
					if err := f.Settle(t.Context(), 0, d.Results...); err != nil {
						t.Fatal(err)
					}
				}
			}
			if admitted != 10 {
				t.Errorf("%d admitted in three outages, want the share of 10", admitted)
			}
		})
	}
}

// The decision may have used up its budget.
func TestNobodyWaitsForGivingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		well, lost := check("well", 5, failmode.Closed), check("lost", 5, failmode.Closed)
		next := &settling{late: time.Second, answer: algorithms.Decision{Results: []algorithms.Result{
			{Check: well, Source: algorithms.SourceRedis, Allowed: true, Charged: 1}, {Check: lost, Err: errAway},
		}}}
		f := &failmode.Fallback{Next: next, Logger: slog.New(slog.DiscardHandler)}
		begun := time.Now()
		if d := take(t, f, well, lost); d.Allowed || time.Since(begun) > 0 {
			t.Errorf("%+v after %s", d, time.Since(begun))
		}
		if err := f.Close(); err != nil || next.settled != 1 {
			t.Errorf("%v, settled %d times", err, next.settled)
		}
	})
}

// beating is a store that counts processes.
type beating struct {
	store

	mu        sync.Mutex
	instances int
	leases    []time.Duration
	err       error
}

func (b *beating) Beat(_ context.Context, id string, lease time.Duration) (int, error) {
	if id == "" {
		return 0, errors.New("no id")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leases = append(b.leases, lease)
	return b.instances, b.err
}

func (b *beating) beats() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.leases)
}

func TestHeartbeatCountsInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &beating{instances: 4}
		f := &failmode.Fallback{Next: s, Logger: slog.New(slog.DiscardHandler)}
		for range 200 { // 20 s
			take(t, f, check("r", 1_000_000, failmode.Local))
			time.Sleep(100 * time.Millisecond)
		}
		if n := s.beats(); n < 4 || n > 5 || f.Processes() != 4 {
			t.Errorf("%d beats in 20 s, %d processes", n, f.Processes())
		}
		s.mu.Lock()
		s.err = errAway
		s.mu.Unlock()
		s.away = map[string]bool{"": true}
		d := take(t, f, check("s", 20, failmode.Local))
		if got := d.Results[0].Check.Limit.Rate; got != 5 {
			t.Errorf("the share in an outage is %d, want 5: the last count stays", got)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if last := s.leases[len(s.leases)-1]; last != 0 {
			t.Errorf("did not leave: last lease %s", last)
		}
		beats := s.beats()
		time.Sleep(time.Minute)
		take(t, f, check("r", 1_000_000, failmode.Local))
		synctest.Wait()
		if s.beats() != beats {
			t.Error("beats after Close")
		}
	})
}

// The heartbeat goes through the breaker, but not while a circuit is open.
func TestHeartbeatThroughABreaker(t *testing.T) {
	breaker(t, func(t *testing.T, b *failmode.Breaker, n *nodes, _ *logbook) {
		f := &failmode.Fallback{Next: b}
		take(t, f, on(0))
		synctest.Wait()
		if f.Processes() != 7 {
			t.Errorf("%d processes", f.Processes())
		}
		take(t, f, on(1))
		n.set(0, errAway, 0)
		for range 5 {
			take(t, f, on(0))
		}
		if _, err := b.Beat(t.Context(), "id", time.Second); err != nil {
			t.Errorf("while one of two circuits is open: %v", err)
		}
		n.set(1, errAway, 0)
		for range 5 {
			take(t, f, on(1))
		}
		if _, err := b.Beat(t.Context(), "id", time.Second); !errors.Is(err, failmode.ErrOpen) {
			t.Errorf("while all are: %v", err)
		}
	})
}

// After an outage the first beats find nobody else. That is believed only when
// the next one says so too.
func TestHeartbeatBelievesInFewerTheSecondTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(beating)
		f := &failmode.Fallback{Next: s, Logger: slog.New(slog.DiscardHandler)}
		for _, c := range []struct{ counted, want int }{{1, 1}, {5, 5}, {1, 5}, {4, 4}, {6, 6}, {2, 6}, {6, 6}, {2, 6}, {1, 1}} {
			s.mu.Lock()
			s.instances = c.counted
			s.mu.Unlock()
			take(t, f, check("r", 1_000_000, failmode.Local))
			synctest.Wait()
			if f.Processes() != c.want {
				t.Errorf("counted %d: %d processes, want %d", c.counted, f.Processes(), c.want)
			}
			time.Sleep(6 * time.Second)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A share that is no valid limit is the whole limit.
func TestAShareThatIsInvalid(t *testing.T) {
	f := &failmode.Fallback{Next: &store{away: map[string]bool{"": true}}, Instances: 100, Logger: slog.New(slog.DiscardHandler)}
	limit := algorithms.Limit{Rate: 100, Period: 365 * 24 * time.Hour, Burst: 3000, Algorithm: algorithms.GCRA}
	d := take(t, f, algorithms.Check{Rule: "r", Limit: limit, Cost: 3000})
	if !d.Allowed || d.Results[0].Check.Limit != limit {
		t.Errorf("%+v", d)
	}
}

// What cannot be settled changes nothing, here or there.
func TestAnInvalidSettleFreesNothing(t *testing.T) {
	s := new(store)
	f := &failmode.Fallback{Next: s, Logger: slog.New(slog.DiscardHandler)}
	c := check("r", 10, failmode.Local)
	c.Cost = 6
	d := take(t, f, c)
	if err := f.Settle(t.Context(), -1, d.Results...); !errors.Is(err, algorithms.ErrInvalidCheck) {
		t.Errorf("got %v", err)
	}
	s.away = map[string]bool{"": true}
	c.Cost = 1
	if left := remaining(t, f, c); left != 4 {
		t.Errorf("%d left here, want 4", left)
	}
}

func TestInstancesThatAreSetAreNotCounted(t *testing.T) {
	s := &beating{instances: 4}
	f := &failmode.Fallback{Next: s, Instances: 2, Logger: slog.New(slog.DiscardHandler)}
	take(t, f, check("r", 10, failmode.Local))
	if err := f.Close(); err != nil || s.beats() != 0 || f.Processes() != 2 {
		t.Errorf("%d beats, %d processes, %v", s.beats(), f.Processes(), err)
	}
}

func TestAHeartbeatThatIsForbiddenIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(logbook)
		s := &beating{err: answer("WRONGPASS invalid username-password pair")} // which the breaker says
		f := &failmode.Fallback{Next: s, Logger: slog.New(slog.NewTextHandler(log, nil))}
		for i := range 200 {
			if i == 100 {
				if log.String() != "" {
					t.Errorf("logged:\n%s", log)
				}
				s.mu.Lock()
				s.err = answer("NOPERM this user has no permissions")
				s.mu.Unlock()
			}
			take(t, f, check("r", 1_000_000, failmode.Local))
			time.Sleep(100 * time.Millisecond)
		}
		if got := strings.Count(log.String(), "set Instances"); got != 1 || f.Processes() != 1 {
			t.Errorf("%d processes, logged:\n%s", f.Processes(), log.String())
		}
	})
}
