package failmode

import (
	"context"
	"testing"

	"github.com/seed75154129/ratelimit/algorithms"
)

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
