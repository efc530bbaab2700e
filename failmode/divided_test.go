package failmode

import (
	"errors"
	"testing"
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
		if d.Allowed || len(d.Results) != 2 || d.Results[1].Source != algorithms.SourceFailClosed || n.asked[0].Load() != asked {
			t.Errorf("a closed rule: %+v", d)
		} else if r := d.Results[0]; r.Check != well || r.Source != algorithms.SourceNone || r.HasRoom || r.Err != nil {
			t.Errorf("the check that was not sent: %+v", r)
		}
		d, err := l.Peek(t.Context(), well, limited(1, 100, Closed))
		if r := d.Results; err != nil || d.Allowed || !r[0].HasRoom || r[0].Remaining != 98 || r[1].Source != algorithms.SourceFailClosed {
			t.Errorf("a Peek beside a closed rule: %+v, %v", d, err)
		}
		if d := taken(t, l, limited(1, 1, Open), well); !d.Allowed || d.Results[0].Source != algorithms.SourceFailOpen || d.Results[1].Charged != 1 {
			t.Errorf("an open rule: %+v", d)
		}
	})
}

func TestADenialElsewhereGivesBackWhatWasCountedHere(t *testing.T) {
	divided(t, func(t *testing.T, l *Guard, _ *nodes) {
		full, lost := limited(0, 1, Local), limited(1, 5, Local)
		if d := taken(t, l, full, lost); !d.Allowed {
			t.Fatalf("%+v", d)
		}
		for range 10 {
			time.Sleep(time.Second) // then it is asked for
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
	for name, c := range map[string]struct {
		rate                int64
		instances, requests int
		refunded            bool // the last of them
	}{
		"it has followed what was admitted and refunded": {5, 1, 4, true},
		"at this instance's share":                       {20, 4, 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := new(distant)
			f := guarding(t, s)
			f.Instances = c.instances
			r := check("r", c.rate, Local)
			var last algorithms.Decision
			for range c.requests {
				last = taken(t, f, r)
			}
			if c.refunded {
				if err := settleAll(t.Context(), f, 0, last.Results...); err != nil {
					t.Fatal(err)
				}
			}
			s.away.Store(&errAway)
			for i, want := range []bool{true, true, false} {
				if d := taken(t, f, r); d.Allowed != want {
					t.Errorf("request %d of the outage: %+v", i, d)
				}
			}
		})
	}
	t.Run("no outage starts afresh", func(t *testing.T) {
		s := new(distant)
		f := guarding(t, s)
		c, admitted := check("r", 5, Local), 0
		for i := range 50 {
			s.away.Store([]*error{&errAway, nil}[i%2])
			if i%10 == 0 {
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

// What cannot be settled changes nothing, here or there.
func TestAnInvalidSettleFreesNothing(t *testing.T) {
	s := new(distant)
	f := guarding(t, s)
	c := check("r", 10, Local)
	c.Cost = 6
	d := taken(t, f, c)
	if err := settleAll(t.Context(), f, -1, d.Results...); !errors.Is(err, algorithms.ErrInvalidCheck) {
		t.Errorf("got %v", err)
	}
	s.away.Store(&errAway)
	c.Cost = 1
	if left := remaining(t, f, c); left != 4 {
		t.Errorf("%d left here, want 4", left)
	}
}
