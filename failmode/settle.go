package failmode

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed75154129/ratelimit/algorithms"
)

// settleLocal settles local charges.
func (g *Guard) settleLocal(ctx context.Context, charges []algorithms.Charge) ([]algorithms.Result, error) {
	for i := range charges {
		charges[i].Result.Source = algorithms.SourceMemory
	}
	results, err := g.local.Settle(ctx, charges...)
	for i := range results {
		results[i].Source = algorithms.SourceFallback
	}
	return results, err
}

// settleStore settles charges of the store, except where a circuit is open, and what
// the local memory has followed of them.
func (g *Guard) settleStore(ctx context.Context, charges []algorithms.Charge) ([]algorithms.Result, error) {
	results := make([]algorithms.Result, len(charges))
	var errs []error
	var sent []int
	for i := range charges {
		r := &results[i]
		switch *r = charges[i].Result; {
		case r.Charged == 0:
		case g.refuses(&r.Check):
			r.Err = ErrOpen
			errs = []error{ErrOpen}
		default:
			sent = append(sent, i)
		}
	}
	if len(sent) == 0 {
		return results, errors.Join(errs...)
	}
	settled, err := g.Limiter.Settle(ctx, pick(charges, sent)...)
	if len(settled) == len(sent) {
		setAt(results, sent, settled)
	} else if err == nil {
		err = fmt.Errorf("%T: %d results for %d charges: return one for each charge, in their order", g.Limiter, len(settled), len(sent))
	}
	for _, i := range sent {
		g.denied.Forget(&charges[i].Result.Check)
		r := &results[i]
		if err != nil && r.Err == nil && r.Charged != charges[i].Cost {
			r.Err = err // as a limiter of the user's own may not say
		}
		if r.Err == nil {
			unfollowIn(&g.local, &charges[i].Result, r, g)
		}
	}
	return results, errors.Join(append(errs, err)...)
}

// giveBack refunds what a request was charged that is denied after all: here at once, and in
// the store without waiting, because the decision may have used up its budget.
func (g *Guard) giveBack(ctx context.Context, results []algorithms.Result) {
	var later []algorithms.Charge
	for i := range results {
		switch r := &results[i]; {
		case r.Charged == 0, r.Err != nil:
		case r.Source == algorithms.SourceFallback:
			if settled, err := g.settleLocal(ctx, []algorithms.Charge{{Result: *r}}); err == nil {
				*r = settled[0]
			}
		case r.Check.InFlight != nil: // the store hears what is under way without it
			r.Check.InFlight, r.Charged = unheard, 0
		case r.Source != algorithms.SourceSync || !g.synced.Settle(r, 0):
			later = append(later, algorithms.Charge{Result: *r})
			r.Charged = 0
		}
	}
	if len(later) > 0 {
		g.refundLater(ctx, later)
	}
}

// refundLater refunds charges of the store in the background. A charge that cannot be
// refunded stays, which errs towards denying.
func (g *Guard) refundLater(ctx context.Context, charges []algorithms.Charge) {
	ctx = context.WithoutCancel(ctx)
	if g.work.Begin(func() { g.refund(ctx, charges) }) {
		return
	}
	lost := g.lost.Add(1)
	g.lostLog.Do(func() {
		g.logger.Warn("ratelimit: charges not refunded; too many refunds under way, or the Guard is closed", "so_far", lost)
	})
}

func (g *Guard) refund(ctx context.Context, charges []algorithms.Charge) {
	ctx, cancel := g.store.Within(ctx)
	defer cancel()
	_, _ = g.settleStore(ctx, charges)
}

// pick returns the elements at these places.
func pick[T any](all []T, at []int) []T {
	picked := make([]T, len(at))
	for i, j := range at {
		picked[i] = all[j]
	}
	return picked
}

// setAt puts elements that pick took back into their places.
func setAt[T any](all []T, at []int, picked []T) {
	for i, j := range at {
		all[j] = picked[i]
	}
}
