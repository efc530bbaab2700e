package failmode_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
)

// forgetful is a store that does not answer the checks of one rule.
type forgetful struct {
	store
	rule string
}

func (s *forgetful) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	d, err := s.store.Take(ctx, checks...)
	var answered []algorithms.Result
	for _, r := range d.Results {
		if r.Check.Rule != s.rule {
			answered = append(answered, r)
		}
	}
	d.Results = answered
	return d, err
}

func TestChecksThatAreNotAnsweredFollowTheirModes(t *testing.T) {
	for mode, allowed := range map[failmode.Mode]bool{failmode.Open: true, failmode.Closed: false, failmode.Local: true} {
		s := &forgetful{rule: "lost"}
		f := &failmode.Fallback{Next: s, Logger: slog.New(slog.DiscardHandler)}
		d := take(t, f, check("well", 5, failmode.Closed), check("lost", 5, mode), check("more", 5, failmode.Closed))
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

// fickle is a breaker of another make, which changes its mind under way.
type fickle struct {
	store
	refuses map[string][]bool // by rule: what it says, one time after the other
}

func (s *fickle) Refuses(c algorithms.Check) bool {
	said := s.refuses[c.Rule]
	if len(said) == 0 {
		return false
	}
	s.refuses[c.Rule] = said[1:]
	return said[0]
}

// What is refused only when the rest is about to be sent, and then denies, leaves
// the others unasked.
func TestResultsStayInOrderWhereACircuitOpensUnderWay(t *testing.T) {
	s := &fickle{refuses: map[string][]bool{
		"b": {true, true},        // is any refused? which?
		"c": {false, true, true}, // which; is any of the rest? which?
	}}
	f := &failmode.Fallback{Next: s, Logger: slog.New(slog.DiscardHandler)}
	a, b, c := check("a", 5, failmode.Local), check("b", 5, failmode.Local), check("c", 5, failmode.Closed)
	d := take(t, f, a, b, c)
	if d.Allowed || len(d.Results) != 2 || d.Results[0].Check.Rule != "b" || d.Results[1].Check.Rule != "c" || d.Results[0].Charged != 0 {
		t.Errorf("%+v", d)
	}
	if used := s.used(t, a); used != 0 {
		t.Errorf("%d used of what was not asked", used)
	}
	if left := remaining(t, f, b); left != 5 {
		t.Errorf("%d left of what was given back, want 5", left)
	}
}
