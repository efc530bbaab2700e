package failmode

import (
	"context"

	"github.com/seed75154129/ratelimit/algorithms"
)

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
