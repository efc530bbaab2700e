package failmode

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// An answer that the store gave before a key was reset or settled, and that
// arrives afterwards, changes nothing that an outage would go by.
func TestLateAnswersAreNotFollowed(t *testing.T) {
	c := check("r", 5, Local)
	for name, scene := range map[string]struct {
		change func(l algorithms.Limiter) error
		left   int64
	}{
		"a count that is reset": {
			func(l algorithms.Limiter) error { return l.Reset(t.Context(), c) }, 4},
		"a count that is settled meanwhile": {
			func(l algorithms.Limiter) error {
				d, err := l.Peek(t.Context(), c)
				if err != nil {
					return err
				}
				d.Results[0].Charged, d.Results[0].Source = 1, algorithms.SourceRedis // of another request
				return settleAll(t.Context(), l, 0, d.Results...)
			}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			s := &distant{back: 10 * time.Millisecond}
			bubble(t, s, func(t *testing.T, g *Guard) {
				var late sync.WaitGroup
				late.Go(func() { taken(t, g, c) })
				time.Sleep(5 * time.Millisecond)
				if err := scene.change(g); err != nil {
					t.Fatal(err)
				}
				late.Wait()
				s.away.Store(&errAway)
				r := taken(t, g, c).Results[0]
				if r.Source != algorithms.SourceFallback || r.Remaining != scene.left {
					t.Errorf("in an outage: %+v; want %d left", r, scene.left)
				}
			})
		})
	}
}

// An answer that arrives while its key is being reset leaves nothing here, either.
func TestAnswersDuringAReset(t *testing.T) {
	c := check("r", 5, Local)
	s := &distant{resets: 20 * time.Millisecond}
	bubble(t, s, func(t *testing.T, g *Guard) {
		var reset sync.WaitGroup
		reset.Go(func() {
			if err := g.Reset(t.Context(), c); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(10 * time.Millisecond)
		taken(t, g, c)
		reset.Wait()
		s.away.Store(&errAway)
		if r := taken(t, g, c).Results[0]; r.Source != algorithms.SourceFallback || r.Remaining != 4 {
			t.Errorf("in an outage: %+v; want 4 left", r)
		}
	})
}

// A careless limiter does not return one result for each check.
type careless struct {
	algorithms.Limiter
	change func([]algorithms.Result) []algorithms.Result
}

func (l *careless) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	d, err := l.Limiter.Take(ctx, checks...)
	d.Results = l.change(d.Results)
	return d, err
}

// An answer without one result for each check decides none of them. All follow their
// modes, the circuit opens, and the log says what is wrong with the limiter.
func TestAnswersWithoutOneResultForEachCheck(t *testing.T) {
	for name, c := range map[string]struct {
		change func(all []algorithms.Result) []algorithms.Result
		says   string
	}{
		"none":         {func([]algorithms.Result) []algorithms.Result { return nil }, "answered 3 checks with 0 results"},
		"one too few":  {func(all []algorithms.Result) []algorithms.Result { return all[1:] }, "answered 3 checks with 2 results"},
		"one too many": {func(all []algorithms.Result) []algorithms.Result { return append(all, all[0]) }, "answered 3 checks with 4 results"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := new(logbook)
				g := &Guard{Limiter: &careless{new(algorithms.Memory), c.change}, Logger: slog.New(slog.NewTextHandler(log, nil))}
				defer g.Close()
				for range 20 {
					d := taken(t, g, check("open", 100, Open), check("local", 100, Local), check("open too", 100, Open))
					var sources []algorithms.Source
					for _, r := range d.Results {
						sources = append(sources, r.Source)
					}
					if !d.Allowed || !slices.Equal(sources, []algorithms.Source{algorithms.SourceFailOpen, algorithms.SourceFallback, algorithms.SourceFailOpen}) {
						t.Fatalf("%+v", d)
					}
				}
				if d := taken(t, g, check("open", 100, Open), check("closed", 100, Closed)); d.Allowed || d.Results[1].Source != algorithms.SourceFailClosed {
					t.Errorf("a closed rule: %+v", d)
				}
				time.Sleep(time.Minute) // probes, too, get answers that decide nothing
				if len(down(g)) != 1 || !strings.Contains(log.String(), c.says) {
					t.Errorf("down: %q; no line says that the limiter %s:\n%s", down(g), c.says, log)
				}
			})
		})
	}
}

// While the store takes long to answer about a known denial, it is not asked again.
func TestASlowStoreIsAskedOnceAboutADenial(t *testing.T) {
	c := check("r", 1, Local)
	s := new(distant)
	bubble(t, s, func(t *testing.T, g *Guard) {
		taken(t, g, c)
		taken(t, g, c) // denied, and remembered
		time.Sleep(2 * time.Second)
		s.back = 500 * time.Millisecond
		before := s.asked.Load()
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() { taken(t, g, c) })
			time.Sleep(40 * time.Millisecond)
		}
		all.Wait()
		if n := s.asked.Load() - before; n != 1 {
			t.Errorf("asked %d times", n)
		}
	})
}
