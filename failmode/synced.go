package failmode

import (
	"context"

	"github.com/seed75154129/ratelimit/algorithms"
)

// takeSynced admits checks by the copies that this process has of their counts, and passes the
// others on. If those deny the request, what it was charged by copies is refunded.
func (g *Guard) takeSynced(ctx context.Context, checks []algorithms.Check) (algorithms.Decision, error) {
	if algorithms.Validate(checks...) != nil {
		return g.takeHeld(ctx, checks) // the store says what is wrong
	}
	d := algorithms.Decision{Allowed: true, Results: make([]algorithms.Result, len(checks))}
	instances := int64(g.instances())
	var few [4]int
	rest := few[:0]
	for i := range checks {
		c := &checks[i]
		if c.Sync == 0 || !g.synced.Take(c, instances, &d.Results[i]) {
			rest = append(rest, i)
		}
	}
	if len(rest) == 0 {
		return d, nil
	}
	asked := g.synced.Now()
	there, err := g.takeHeld(ctx, pick(checks, rest))
	if err != nil || !there.Allowed {
		for i := range d.Results {
			if r := &d.Results[i]; r.Charged > 0 && !g.synced.Settle(r, 0) {
				g.refundLater(ctx, algorithms.Charge{Result: *r})
				r.Charged = 0
			}
		}
	}
	if err != nil {
		return algorithms.Decision{}, err
	}
	for i := range there.Results {
		if r := &there.Results[i]; r.Check.Sync > 0 && ofStore(r) && r.Trace.Known {
			g.synced.Learn(asked, r)
		}
	}
	setAt(d.Results, rest, there.Results)
	d.Allowed = there.Allowed
	return d, nil
}

// tell has the store count what was admitted by copies, and local counting follow. It returns
// a result for each charge, with an Err if it may not be counted. While a circuit is open,
// nothing is told, then or later: a bucket would deny everybody afterwards.
func (g *Guard) tell(charges []algorithms.Charge) []algorithms.Result {
	results := make([]algorithms.Result, len(charges))
	var sent []int
	for i := range charges {
		if results[i].Err = ErrOpen; !g.refuses(&charges[i].Result.Check) {
			sent = append(sent, i)
		}
	}
	if len(sent) == 0 {
		return results
	}
	ctx, cancel := g.store.Within(context.Background())
	defer cancel()
	resets := g.resets.Load()
	var told []algorithms.Result
	_ = g.work.Safely(func() (err error) {
		told, err = g.Limiter.Settle(ctx, pick(charges, sent)...)
		return err
	})
	if len(told) != len(sent) {
		return results
	}
	for j, i := range sent {
		units := charges[i].Cost - charges[i].Result.Charged
		if told[j].Charged != charges[i].Cost {
			continue
		}
		if results[i] = told[j]; units < 0 {
			g.denied.Forget(&told[j].Check)
		}
		results[i].Charged, results[i].HasRoom = max(units, 0), true
	}
	g.follow(resets, results)
	return results
}
