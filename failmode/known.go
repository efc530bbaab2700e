package failmode

import (
	"context"
	"fmt"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// errOvertaken is why a request that waited for others is not decided by the
// store: those got no answer. It is no outage, so the request is counted locally
// in every mode.
var errOvertaken = fmt.Errorf("failmode: others that asked for the key got no answer: %w", context.DeadlineExceeded)

// take decides checks that are to be charged. It does not ask the store about a
// request of which it is known here that the store would deny it.
func (g *Guard) take(ctx context.Context, checks []algorithms.Check) (algorithms.Decision, error) {
	if named := g.inFlight.named(checks); named != nil {
		return g.takeHeld(ctx, named)
	}
	return g.takeKnown(ctx, checks)
}

func (g *Guard) takeKnown(ctx context.Context, checks []algorithms.Check) (algorithms.Decision, error) {
	var room [4]lookup
	looks := room[:]
	if len(checks) > len(room) {
		looks = make([]lookup, len(checks))
	}
	looks = looks[:len(checks)]
	if g.denied.used.Load() {
		if d, decided, err := g.decideKnown(ctx, checks, looks); decided {
			return d, err
		}
	}
	return g.takeAsking(ctx, checks, looks)
}

// takeAsking asks the store, and tells the cache of denials what it answered.
func (g *Guard) takeAsking(ctx context.Context, checks []algorithms.Check, looks []lookup) (d algorithms.Decision, err error) {
	learned := false
	defer func() {
		for i := range looks {
			if !learned { // an error of the caller's, or a panic
				g.denied.release(&looks[i], false)
			}
		}
	}()
	sent := g.denied.sending()
	if d, err = g.decide(ctx, true, checks); err != nil {
		return d, err
	}
	learned = true
	for i := range checks {
		switch r := answerTo(&d, i, &checks[i]); {
		case r == nil || !ofStore(r):
			g.denied.release(&looks[i], r != nil && r.Source != algorithms.SourceNone)
		case !r.Check.Shadow:
			g.denied.learn(sent, &looks[i], r)
		}
	}
	g.follow(sent, d.Results)
	return d, nil
}

// answerTo returns the result of a check; nil if the decision leaves it out.
func answerTo(d *algorithms.Decision, i int, c *algorithms.Check) *algorithms.Result {
	if i < len(d.Results) && d.Results[i].Check.Rule == c.Rule && d.Results[i].Check.Key == c.Key {
		return &d.Results[i]
	}
	for j := range d.Results {
		if r := &d.Results[j]; r.Check.Rule == c.Rule && r.Check.Key == c.Key {
			return r
		}
	}
	return nil
}

// decideKnown decides a request that is known to be denied. Otherwise the caller
// must ask the store, with what was looked up.
func (g *Guard) decideKnown(ctx context.Context, checks []algorithms.Check, looks []lookup) (d algorithms.Decision, decided bool, err error) {
	if !valid(checks) {
		return d, false, nil // the store says what is wrong
	}
	var timer *time.Timer
	for {
		var wait *lookup
		denied, now := false, g.denied.now()
		for i := range checks {
			c, l := &checks[i], &looks[i]
			*l = lookup{}
			if c.Shadow || c.NoCache && c.Ban == (algorithms.Ban{}) {
				continue
			}
			switch *l = g.denied.look(c, now); l.outcome {
			case mustNot:
				denied = true
			case mayWait:
				wait = l
			}
		}
		switch {
		case denied && (wait != nil || !g.denied.lookAgain(looks, now)):
			g.releaseAll(looks)
			return deny(checks, looks), true, nil
		case wait == nil:
			return d, false, nil
		}
		g.releaseAll(looks)
		if timer == nil {
			timer = time.NewTimer(g.store.Budget())
			defer timer.Stop()
		}
		select {
		case <-wait.wake:
		case <-timer.C:
			wait.outcome = mustNot // others have taken the room
			return deny(checks, looks), true, nil
		}
		if wait.gotNone() {
			d, err = g.standIn(ctx, true, undecided(checks, errOvertaken))
			return d, true, err
		}
	}
}

func (g *Guard) releaseAll(looks []lookup) {
	for i := range looks {
		g.denied.release(&looks[i], false)
	}
}

// gotNone reports whether those who asked for the entry got no answer.
func (l *lookup) gotNone() bool {
	l.set.mu.Lock()
	defer l.set.mu.Unlock()
	return l.entry.lost
}

// deny is the decision on a request that is known to be denied. Checks of which
// nothing is known keep their places, without a Source.
func deny(checks []algorithms.Check, looks []lookup) algorithms.Decision {
	d := algorithms.Decision{Results: make([]algorithms.Result, len(checks))}
	for i := range checks {
		r := &d.Results[i]
		if r.Check = checks[i]; looks[i].outcome == mustNot {
			looks[i].deny(r)
		}
	}
	return d
}
