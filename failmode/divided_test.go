package failmode

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// divided runs a test with a store of two shards, of which shard 1 is away and
// its circuit open.
func divided(t *testing.T, f func(t *testing.T, g *Guard, n *nodes)) {
	t.Helper()
	circuits(t, func(t *testing.T, g *Guard, n *nodes, _ *logbook) {
		n.set(1, errAway, 0)
		askFor(g, 5, on(1))
		f(t, g, n)
	})
}

func limited(shard int, rate int64, fail Mode) algorithms.Check {
	c := on(shard)
	c.Limit, c.Fail = algorithms.PerHour(rate), fail
	return c
}

func TestRefusedChecksAreDecidedFirst(t *testing.T) {
	divided(t, func(t *testing.T, l *Guard, n *nodes) {
		well, lost := limited(0, 100, Local), limited(1, 2, Local)
		for i, want := range []bool{true, true, false, false} {
			asked := n.asked[0].Load()
			d := taken(t, l, well, lost)
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
		d := taken(t, l, well, limited(1, 100, Closed))
		if d.Allowed || len(d.Results) != 1 || d.Results[0].Source != algorithms.SourceFailClosed || n.asked[0].Load() != asked {
			t.Errorf("a closed rule: %+v", d)
		}
		if d := taken(t, l, limited(1, 1, Open), well); !d.Allowed || d.Results[0].Source != algorithms.SourceFailOpen || d.Results[1].Charged != 1 {
			t.Errorf("an open rule: %+v", d)
		}
	})
}

func TestADenialElsewhereGivesBackWhatWasCountedHere(t *testing.T) {
	divided(t, func(t *testing.T, l *Guard, _ *nodes) {
		full, lost := limited(0, 1, Local), limited(1, 5, Local)
		full.NoCache = true // so that it is asked for
		if d := taken(t, l, full, lost); !d.Allowed {
			t.Fatalf("%+v", d)
		}
		for range 10 {
			d := taken(t, l, full, lost)
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
	away := func(s *fakeRedis, is bool) {
		if s.away = nil; is {
			s.away = awayForAll
		}
	}

	t.Run("it has followed what was admitted and given back", func(t *testing.T) {
		s := new(fakeRedis)
		f := guarding(t, s)
		c := check("r", 5, Local)
		var last algorithms.Decision
		for range 4 {
			last = taken(t, f, c)
		}
		if err := settleAll(t.Context(), f, 0, last.Results...); err != nil {
			t.Fatal(err)
		}
		away(s, true)
		for i, want := range []bool{true, true, false} {
			if d := taken(t, f, c); d.Allowed != want {
				t.Errorf("request %d of the outage: %+v", i, d)
			}
		}
	})
	t.Run("at this instance's share", func(t *testing.T) {
		s := new(fakeRedis)
		f := guarding(t, s)
		f.Instances = 4
		c := check("r", 20, Local)
		for range 3 {
			taken(t, f, c)
		}
		away(s, true)
		for i, want := range []bool{true, true, false} {
			if d := taken(t, f, c); d.Allowed != want {
				t.Errorf("request %d of the outage: %+v", i, d)
			}
		}
	})
	t.Run("whom another instance made exhaust the limit stays denied", func(t *testing.T) {
		s := new(fakeRedis)
		f := guarding(t, s)
		c := check("r", 5, Local)
		for range 5 {
			taken(t, s, c) // not through f
		}
		if d := taken(t, f, c); d.Allowed {
			t.Fatalf("%+v", d)
		}
		away(s, true)
		if d := taken(t, f, c); d.Allowed || d.Results[0].Source != algorithms.SourceDenyCache {
			t.Errorf("%+v", d)
		}
	})
	t.Run("no outage starts afresh", func(t *testing.T) {
		s := new(fakeRedis)
		f := guarding(t, s)
		c, admitted := check("r", 5, Local), 0
		for i := range 50 {
			if away(s, i%2 == 0); i%10 == 0 {
				_ = s.Memory.Reset(t.Context(), c) // Redis comes back empty
			}
			if d := taken(t, f, c); d.Allowed && d.Results[0].Source == algorithms.SourceFallback {
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
			s := new(fakeRedis)
			f := guarding(t, s)
			c := check("r", 10, Local)
			c.Limit.Algorithm = algorithm
			admitted := 0
			for range 3 {
				s.away = awayForAll
				for range 20 {
					if taken(t, f, c).Allowed {
						admitted++
					}
				}
				s.away = nil
				for range 10 { // served by Redis, and given back
					d := taken(t, f, c)
					if err := settleAll(t.Context(), f, 0, d.Results...); err != nil {
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
		well, lost := check("well", 5, Closed), check("lost", 5, Closed)
		next := &settling{late: time.Second, answer: algorithms.Decision{Results: []algorithms.Result{
			{Check: well, Source: algorithms.SourceRedis, HasRoom: true, Charged: 1}, {Check: lost, Err: errAway},
		}}}
		f := guarding(t, next)
		begun := time.Now()
		if d := taken(t, f, well, lost); d.Allowed || time.Since(begun) > 0 {
			t.Errorf("%+v after %s", d, time.Since(begun))
		}
		if err := f.Close(); err != nil || next.settled != 1 {
			t.Errorf("%v, settled %d times", err, next.settled)
		}
	})
}

// A share that is no valid limit is the whole limit.
func TestAShareThatIsInvalid(t *testing.T) {
	f := guarding(t, &fakeRedis{away: awayForAll})
	f.Instances = 100
	limit := algorithms.Limit{Rate: 100, Period: 365 * 24 * time.Hour, Burst: 3000, Algorithm: algorithms.GCRA}
	d := taken(t, f, algorithms.Check{Rule: "r", Limit: limit, Cost: 3000})
	if !d.Allowed || d.Results[0].Check.Limit != limit {
		t.Errorf("%+v", d)
	}
}

// What cannot be settled changes nothing, here or there.
func TestAnInvalidSettleFreesNothing(t *testing.T) {
	s := new(fakeRedis)
	f := guarding(t, s)
	c := check("r", 10, Local)
	c.Cost = 6
	d := taken(t, f, c)
	if err := settleAll(t.Context(), f, -1, d.Results...); !errors.Is(err, algorithms.ErrInvalidCheck) {
		t.Errorf("got %v", err)
	}
	s.away = awayForAll
	c.Cost = 1
	if left := remaining(t, f, c); left != 4 {
		t.Errorf("%d left here, want 4", left)
	}
}
