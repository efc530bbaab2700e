package failmode

import (
	"context"
	"errors"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/inside"
	"github.com/seed75154129/ratelimit/internal/memory"
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
		part := inside.PartOf(ctx, begun.Add(g.store.Budget()))
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
		if c.Shadow || !lent.Check(c).Holds() || !lent.Check(c).Count(&n[0]) {
			continue
		}
		if lent.Memory(&g.local).Decide(false, n[:]); n[0].Room {
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

// settleHeld ends requests under way: here at once, and in the store soon.
func (g *Guard) settleHeld(ctx context.Context, charges []algorithms.Charge) ([]algorithms.Result, error) {
	results := make([]algorithms.Result, len(charges))
	var errs []error
	for i := range charges {
		r := &results[i]
		*r = charges[i].Result
		lent.Result(r).Update()
		ch := algorithms.Charge{Result: *r, Cost: charges[i].Cost}
		id := lent.Result(r).Trace().Charge.At
		switch {
		case r.Charged == 0 || ch.Cost == r.Charged:
		case r.Source == algorithms.SourceFallback:
			settled, err := g.settleLocal(ctx, []algorithms.Charge{ch})
			errs = append(errs, err)
			*r = settled[0]
			g.inFlight.End(id)
		case r.Source == algorithms.SourceFailOpen:
			g.inFlight.End(id)
			lent.Result(r).Ended()
		default:
			known, ended := true, false
			lent.Result(r).SettleBy(0, func(int64) bool {
				known = g.inFlight.End(id)
				ended = known
				return known
			})
			if !known { // of another Guard, or this one is closed
				settled, err := g.settleStore(ctx, []algorithms.Charge{ch})
				results[i], errs = settled[0], append(errs, err)
				continue
			}
			if lent.Result(r).Ended(); ended { // by this call, and not by another at the same time
				unfollowIn(&g.local, &ch.Result, ch.Result.Charged, r, g)
				g.denied.Forget(&r.Check)
			}
		}
	}
	return results, errors.Join(errs...)
}
