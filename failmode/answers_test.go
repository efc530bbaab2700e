package failmode

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// An answer that the store gave before a key was banned, lifted or reset, and that
// arrives afterwards, changes nothing that an outage would go by.
func TestLateAnswersAreNotFollowed(t *testing.T) {
	c := check("r", 5, Local)
	for name, scene := range map[string]struct {
		before, change func(l algorithms.Limiter) error
		banned         bool
		left           int64
	}{
		"a ban that is lifted": {
			func(l algorithms.Limiter) error { return l.Ban(t.Context(), time.Hour, c) },
			func(l algorithms.Limiter) error { return l.Ban(t.Context(), 0, c) }, false, 4},
		"a ban that is reset": {
			func(l algorithms.Limiter) error { return l.Ban(t.Context(), time.Hour, c) },
			func(l algorithms.Limiter) error { return l.Reset(t.Context(), c) }, false, 4},
		"a key that is banned": {
			func(algorithms.Limiter) error { return nil },
			func(l algorithms.Limiter) error { return l.Ban(t.Context(), time.Hour, c) }, true, 0},
		"a count that is reset": {
			func(algorithms.Limiter) error { return nil },
			func(l algorithms.Limiter) error { return l.Reset(t.Context(), c) }, false, 4},
		"a count that is settled meanwhile": {
			func(algorithms.Limiter) error { return nil },
			func(l algorithms.Limiter) error {
				d, err := l.Peek(t.Context(), c)
				if err != nil {
					return err
				}
				d.Results[0].Charged, d.Results[0].Source = 1, algorithms.SourceRedis // of another request
				return settleAll(t.Context(), l, 0, d.Results...)
			}, false, 3},
	} {
		t.Run(name, func(t *testing.T) {
			s := &distant{back: 10 * time.Millisecond}
			bubble(t, s, func(t *testing.T, g *Guard) {
				if err := scene.before(g); err != nil {
					t.Fatal(err)
				}
				var late sync.WaitGroup
				late.Go(func() { taken(t, g, c) })
				time.Sleep(5 * time.Millisecond)
				if err := scene.change(g); err != nil {
					t.Fatal(err)
				}
				late.Wait()
				s.away.Store(&errAway)
				r := taken(t, g, c).Results[0]
				if r.Source != algorithms.SourceFallback || r.BannedFor > 0 != scene.banned || r.BannedFor == 0 && r.Remaining != scene.left {
					t.Errorf("in an outage: %+v; want banned %v, %d left", r, scene.banned, scene.left)
				}
			})
		})
	}
}

// A block that was granted before its key was banned or reset is not spent.
func TestLateBlocksAreNotSpent(t *testing.T) {
	c := leased(10_000, time.Hour, algorithms.FixedWindow)
	for name, change := range map[string]func(g *Guard) error{
		"Ban":   func(g *Guard) error { return g.Ban(t.Context(), time.Hour, c) },
		"Reset": func(g *Guard) error { return g.Reset(t.Context(), c) },
	} {
		t.Run(name, func(t *testing.T) {
			s := new(distant)
			bubble(t, s, func(t *testing.T, g *Guard) {
				for range 100 {
					taken(t, g, c)
				}
				synctest.Wait() // for blocks under way
				s.back = 10 * time.Millisecond
				taken(t, g, c)
				g.refill(t.Context(), g.leases.Find(&c), c, 100)
				synctest.Wait()
				if err := change(g); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second / 2)
				if n := block(g, c); n != 0 {
					t.Errorf("%d left", n)
				}
			})
		})
	}
}

// forgetful is a store that does not answer the checks of one rule, or one key of it.
type forgetful struct {
	fakeRedis
	rule, key string
}

func (s *forgetful) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	d, err := s.fakeRedis.Take(ctx, checks...)
	var answered []algorithms.Result
	for _, r := range d.Results {
		if r.Check.Rule != s.rule || s.key != "" && r.Check.Key != s.key {
			answered = append(answered, r)
		}
	}
	d.Results = answered
	return d, err
}

func TestChecksThatAreNotAnsweredFollowTheirModes(t *testing.T) {
	for mode, allowed := range map[Mode]bool{Open: true, Closed: false, Local: true} {
		s := &forgetful{rule: "lost"}
		f := guarding(t, s)
		d := taken(t, f, check("well", 5, Closed), check("lost", 5, mode), check("more", 5, Closed))
		if d.Allowed != allowed || len(d.Results) != 3 {
			t.Fatalf("mode %d: %+v", mode, d)
		}
		for i, want := range []algorithms.Source{
			algorithms.SourceRedis,
			[]algorithms.Source{algorithms.SourceFallback, algorithms.SourceFailOpen, algorithms.SourceFailClosed}[mode],
			algorithms.SourceRedis,
		} {
			if got := d.Results[i].Source; got != want {
				t.Errorf("mode %d: result %d is from %q, want %q", mode, i, got, want)
			}
		}
	}
}

// The answer to one key of a rule is none to another, which would be given back twice.
func TestAnAnswerIsForOneKey(t *testing.T) {
	s := &forgetful{rule: "r", key: "lost"}
	g := guarding(t, s)
	lost, there, over := check("r", 5, Closed), check("r", 5, Closed), check("over", 1, Closed)
	lost.Key, there.Key = "lost", "there"
	taken(t, g, over)
	taken(t, g, there)
	d := taken(t, g, lost, there, over)
	if d.Allowed || d.Results[0].Source != algorithms.SourceFailClosed || d.Results[0].Check.Key != "lost" || d.Results[1].Check.Key != "there" {
		t.Errorf("%+v", d)
	}
	s.untilUsed(t, there, 1)
}
