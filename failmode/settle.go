package failmode

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// Settle implements [algorithms.Limiter]. Each charge is settled where it was made. If
// a server's circuit is open, its charges stay, and the error wraps [ErrOpen]. Other
// charges are settled even so: the results say what each costs.
func (g *Guard) Settle(ctx context.Context, charges ...algorithms.Charge) ([]algorithms.Result, error) {
	if g.ready(); g.invalid != nil {
		return nil, g.invalid
	}
	if err := lent.Invalid(charges); err != nil { // before anything is settled
		return nil, err
	}
	if !slices.ContainsFunc(charges, func(c algorithms.Charge) bool { return !g.inFlight.holds(&c.Result.Check) }) {
		return g.settleHeld(ctx, charges) // at the end of a request
	}
	charges = slices.Clone(charges)
	for i := range charges {
		lent.Result(&charges[i].Result).Update()
	}
	var store, local, leased, held []int
	for i := range charges {
		switch r := &charges[i].Result; {
		case g.inFlight.holds(&r.Check):
			held = append(held, i)
		case r.Source == algorithms.SourceLease:
			leased = append(leased, i)
		case r.Source == algorithms.SourceFallback:
			local = append(local, i)
		default:
			store = append(store, i)
		}
	}
	var results []algorithms.Result
	settle := func(at []int, by func(context.Context, []algorithms.Charge) ([]algorithms.Result, error)) (err error) {
		switch {
		case len(at) == 0:
			return nil
		case len(at) == len(charges): // the usual case
			results, err = by(ctx, charges)
			return err
		case results == nil:
			results = make([]algorithms.Result, len(charges))
		}
		settled, err := by(ctx, pick(charges, at))
		setAt(results, at, settled)
		return err
	}
	err := errors.Join(settle(held, g.settleHeld), settle(leased, g.settleBlocks), settle(local, g.settleLocal), settle(store, g.settleStore))
	return results, err
}

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
// the local memory has followed of them. The results say what the charges cost before.
func (g *Guard) settleStore(ctx context.Context, charges []algorithms.Charge) ([]algorithms.Result, error) {
	results := make([]algorithms.Result, len(charges))
	for i := range charges {
		results[i] = charges[i].Result
	}
	refused, sent := split(len(charges), func(i int) bool { return charges[i].Result.Charged == 0 || g.refuses(&charges[i].Result.Check) })
	var err error
	if slices.ContainsFunc(refused, func(i int) bool { return charges[i].Result.Charged > 0 }) {
		err = ErrOpen
	}
	if len(sent) == 0 {
		return results, err
	}
	settled, storeErr := g.Limiter.Settle(ctx, pick(charges, sent)...)
	if len(settled) == len(sent) {
		setAt(results, sent, settled)
	}
	for _, i := range sent {
		g.denied.Forget(&charges[i].Result.Check, false)
		if results[i].Charged == charges[i].Cost {
			unfollowIn(&g.local, &charges[i], &results[i], g)
		}
	}
	return results, errors.Join(err, storeErr)
}

// refuses reports whether the circuit of a check's server is open.
func (g *Guard) refuses(c *algorithms.Check) bool {
	return g.breaker.Circuit(g.store.Shard(c)).IsOpen()
}

// refundLocal refunds the local charges of a request that is denied.
func (g *Guard) refundLocal(ctx context.Context, d algorithms.Decision) {
	charged, _ := split(len(d.Results), func(i int) bool {
		return d.Results[i].Charged > 0 && d.Results[i].Source == algorithms.SourceFallback
	})
	if len(charged) == 0 {
		return
	}
	charges := make([]algorithms.Charge, len(charged))
	for j, i := range charged {
		charges[j].Result = d.Results[i]
	}
	if results, err := g.settleLocal(ctx, charges); err == nil {
		setAt(d.Results, charged, results)
	}
}

// refundStore refunds the store's charges of a request that is denied after all.
// It does not wait, because the decision may have used up its budget.
func (g *Guard) refundStore(ctx context.Context, results []algorithms.Result) {
	var charges []algorithms.Charge
	for i := range results {
		if r := &results[i]; r.Charged > 0 && ofStore(r) {
			if g.inFlight.holds(&r.Check) {
				g.inFlight.Drop(g.inFlight.store.PlaceOf(&r.Check))
				r.Charged = 0
				continue
			}
			charges = append(charges, algorithms.Charge{Result: *r})
			r.Charged = 0
		}
	}
	if len(charges) > 0 {
		g.refundLater(ctx, charges...)
	}
}

// refundLater refunds charges of the store in the background. A charge that cannot be
// refunded stays, which errs towards denying.
func (g *Guard) refundLater(ctx context.Context, charges ...algorithms.Charge) {
	ctx = context.WithoutCancel(ctx)
	if g.work.Begin(func() { g.refund(ctx, charges...) }) {
		return
	}
	lost := g.lost.Add(1)
	g.lostLog.Do(func() {
		g.logger.Warn("ratelimit: charges not refunded; too many refunds under way, or the Guard is closed", "so_far", lost)
	})
}

func (g *Guard) refund(ctx context.Context, charges ...algorithms.Charge) {
	ctx, cancel := g.store.Within(ctx)
	defer cancel()
	_, _ = g.settleStore(ctx, charges)
}

// Ban implements [algorithms.Limiter]. Other processes may admit the keys for up to a
// second. If a server's circuit is open, its keys are banned or unbanned only in this
// process, and the error wraps [ErrOpen]. Unless checks or
// fields are invalid, this process and the reachable servers are changed, whatever the
// error is.
func (g *Guard) Ban(ctx context.Context, d time.Duration, checks ...algorithms.Check) error {
	return g.change(checks, func(l algorithms.Limiter, checks []algorithms.Check) error { return l.Ban(ctx, d, checks...) })
}

// Reset implements [algorithms.Limiter]. If a server's circuit is open, its checks are
// reset only in this process, and the error wraps [ErrOpen]. Unless checks or
// fields are invalid, this process and the reachable servers are changed, whatever the
// error is.
func (g *Guard) Reset(ctx context.Context, checks ...algorithms.Check) error {
	return g.change(checks, func(l algorithms.Limiter, checks []algorithms.Check) error { return l.Reset(ctx, checks...) })
}

// change changes the counts or bans of checks, here and in the store, and forgets
// their denials.
func (g *Guard) change(checks []algorithms.Check, do func(algorithms.Limiter, []algorithms.Check) error) error {
	if g.ready(); g.invalid != nil {
		return g.invalid
	}
	local := do(&g.local, checks)
	if errors.Is(local, algorithms.ErrInvalidCheck) {
		return local
	}
	defer func() { // what the store answered until then may be from before
		for i := range checks {
			g.denied.Forget(&checks[i], true)
			g.leases.Drop(&checks[i])
		}
		_ = do(&g.local, checks)
	}()
	refused, sent := split(len(checks), func(i int) bool { return g.refuses(&checks[i]) })
	var err error
	if len(refused) > 0 {
		err = errors.Join(ErrOpen, local) // otherwise a ban for which this process has no space is in the store
	}
	if len(sent) == 0 && len(checks) > 0 {
		return err
	}
	return errors.Join(err, do(g.Limiter, pick(checks, sent)))
}
