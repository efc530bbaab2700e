package failmode

import (
	"context"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/memory"
	"github.com/seed75154129/ratelimit/internal/wait"
)

// nameHeld names the checks of requests in flight, before they are sent.
func (g *Guard) nameHeld(ctx context.Context, checks []algorithms.Check) (d algorithms.Decision, err error) {
	named := g.inFlight.named(checks)
	if named == nil {
		return g.recall(ctx, checks, nil)
	}
	if d, full := g.fullHere(named); full {
		return d, nil
	}
	answered := false
	defer func() {
		for i := range named {
			if c := &named[i]; !answered && g.inFlight.holds(c) { // the limiter has panicked
				g.inFlight.Drop(g.inFlight.store.PlaceOf(c))
			}
		}
	}()
	begun := time.Now()
	d, err = g.recall(ctx, named, named)
	for err == nil && !d.Allowed {
		part := wait.PartOf(ctx, begun.Add(g.store.Budget()))
		if !g.inFlight.freed(part, &d, begun) {
			break
		}
		named = g.inFlight.named(checks)
		d, err = g.recall(part, named, named)
	}
	answered = true
	g.inFlight.decided(&d)
	return d, err
}

// fullHere denies a request of which as much runs in this process alone as may run in
// all. Nothing else about requests under way is remembered.
func (g *Guard) fullHere(checks []algorithms.Check) (d algorithms.Decision, full bool) {
	for i := range checks {
		c := &checks[i]
		var n [1]memory.Count
		if c.Shadow || c.Limit.Algorithm != algorithms.InFlight || !c.Count(&n[0]) {
			continue
		}
		if g.local.Store().Decide(false, n[:]); n[0].Room {
			continue
		}
		if !full {
			d.Results, full = make([]algorithms.Result, len(checks)), true
			for j := range checks {
				d.Results[j].Check = checks[j]
			}
		}
		r := &d.Results[i]
		r.Source, r.HasRoom, r.At = algorithms.SourceDenyCache, false, time.Now()
		r.Remaining, r.RetryAfter = min(n[0].Answer.Remaining, 0), n[0].Answer.RetryAfter
	}
	return d, full
}

// ended ends a request under way: here at once, and in the store soon. It reports false for
// what is to be settled as other charges are: a local count, and places of another Guard or
// of one that is closed.
func (g *Guard) ended(r *algorithms.Result) bool {
	if !g.inFlight.holds(&r.Check) {
		return false
	}
	known := g.inFlight.End(r.Trace.Charge.At)
	if r.Source == algorithms.SourceFallback || !known && r.Source != algorithms.SourceFailOpen {
		return false
	}
	charge := *r
	r.Charged = 0
	r.Remaining++
	unfollowIn(&g.local, &charge, r, g)
	g.denied.Forget(&r.Check)
	return true
}
