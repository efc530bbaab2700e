package failmode

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// Take implements [algorithms.Limiter].
func (g *Guard) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	if g.ready(); g.invalid != nil {
		return algorithms.Decision{}, g.invalid
	}
	g.heartbeat.tick(ctx)
	if storeOnly(checks) {
		return g.askStore(ctx, true, checks)
	}
	if d, full := g.fullHere(checks); full {
		return d, nil
	}
	d, denied, again := g.denied.Decide(checks)
	if denied {
		return d, nil
	}
	asked, resets := time.Now(), g.resets.Load()
	d, err := g.decide(ctx, true, checks)
	for i := range d.Results {
		if r := &d.Results[i]; ofStore(r) || r.Source == algorithms.SourceSync { // a copy speaks for the store
			g.denied.Learn(asked, r, again)
			g.synced.Learn(asked, r)
		}
	}
	g.follow(resets, d.Results)
	return d, err
}

// Reuse lets the Guard write another denial over the results of d, a denial by its Take that
// nobody looks at any more, if it is a known one and no limiter of the program's can have seen
// it. A Middleware does so if no function of the program's has seen it.
func (g *Guard) Reuse(d algorithms.Decision) {
	if _, own := g.Limiter.(*algorithms.Redis); !own {
		return
	}
	for i := range d.Results {
		if r := &d.Results[i]; r.Err != nil || r.Source != algorithms.SourceDenyCache && r.Source != algorithms.SourceNone {
			return
		}
	}
	g.denied.Reuse(d.Results)
}

// Peek implements [algorithms.Limiter]. It asks the limiter even about keys that Take
// denies without asking. So Peek and Take may differ for up to a second.
func (g *Guard) Peek(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	if g.ready(); g.invalid != nil {
		return algorithms.Decision{}, g.invalid
	}
	if storeOnly(checks) {
		return g.askStore(ctx, false, checks)
	}
	return g.decide(ctx, false, checks)
}

// storeOnly reports whether the store decides a request, or nobody.
func storeOnly(checks []algorithms.Check) bool {
	for i := range checks {
		if checks[i].StoreOnly {
			return true
		}
	}
	return false
}

// KnownOver reports whether the limiter would deny a check, as far as this process knows. It
// asks nobody.
func (g *Guard) KnownOver(c *algorithms.Check) bool {
	if g.ready(); g.invalid != nil {
		return false
	}
	_, over := g.knownDenial(c)
	return over
}

// Settle implements [algorithms.Limiter]. Each charge is settled where it was made. If a
// server's circuit is open, its charges stay as they are, and the error wraps [ErrOpen].
// All other charges are settled: the results say what each costs.
func (g *Guard) Settle(ctx context.Context, charges ...algorithms.Charge) ([]algorithms.Result, error) {
	if g.ready(); g.invalid != nil {
		return nil, g.invalid
	}
	var wrong error
	for i := range charges { // before anything is settled
		wrong = errors.Join(wrong, charges[i].Validate())
	}
	if wrong != nil {
		return nil, wrong
	}
	results := make([]algorithms.Result, len(charges))
	var store, local []int
	for i := range charges {
		r := &results[i]
		switch *r = charges[i].Result; {
		case r.Charged == 0 || r.Charged == charges[i].Cost || g.ended(r):
		case r.Source == algorithms.SourceSync && g.synced.Settle(r, charges[i].Cost):
		case r.Source == algorithms.SourceFallback:
			local = append(local, i)
		default:
			store = append(store, i)
		}
	}
	var errs []error
	settle := func(at []int, by func(context.Context, []algorithms.Charge) ([]algorithms.Result, error)) {
		if len(at) > 0 {
			settled, err := by(ctx, pick(charges, at))
			setAt(results, at, settled)
			errs = append(errs, err)
		}
	}
	settle(local, g.settleLocal)
	settle(store, g.settleStore)
	return results, errors.Join(errs...)
}

// Reset implements [algorithms.Limiter]. If a server's circuit is open, its checks are
// reset only in this process, and the error wraps [ErrOpen]. If checks and fields are
// valid, this process and the reachable servers are changed, whatever the error is.
func (g *Guard) Reset(ctx context.Context, checks ...algorithms.Check) error {
	if g.ready(); g.invalid != nil {
		return g.invalid
	}
	if err := g.local.Reset(ctx, checks...); err != nil {
		return err
	}
	defer func() { // what the store answered until then may be from before
		if slices.ContainsFunc(checks, func(c algorithms.Check) bool { return !c.StoreOnly }) {
			g.resets.Add(1) // of checks that are StoreOnly, nothing is remembered here
		}
		for i := range checks {
			g.denied.Forget(&checks[i])
			g.synced.Drop(&checks[i])
		}
		_ = g.local.Reset(ctx, checks...)
	}()
	var err error
	var sent []algorithms.Check
	for i := range checks {
		if g.refuses(&checks[i]) {
			err = ErrOpen
		} else {
			sent = append(sent, checks[i])
		}
	}
	if len(sent) == 0 && len(checks) > 0 {
		return err
	}
	return errors.Join(err, g.Limiter.Reset(ctx, sent...))
}

// Close ends the Guard's goroutines and closes its own connections, and the client if
// [Redis] made it; otherwise the caller closes it. In the store, it ends this process'
// requests in flight, even while their handlers run: call it when the process ends. It waits
// for a probe, for refunds and batches, for decisions in progress and for a last heartbeat:
// at most a few times as long as a decision may take, and a second more if many thousands of
// requests are in flight.
// Decisions after Close still work, but no circuit opens. Further calls of Close do
// nothing.
func (g *Guard) Close() (err error) {
	g.ready()
	g.closing.Do(func() {
		if g.client != nil {
			defer func() { err = g.client.Close() }()
		}
		if g.invalid != nil {
			return // nothing was started; Take says what is wrong
		}
		g.monitor.End()
		g.synced.End()
		g.inFlight.Close(func() {
			g.work.End()
			g.untilIdle()
		})
		g.heartbeat.end()
	})
	return err
}

// untilIdle waits until no decision is in progress, for no longer than one may take.
func (g *Guard) untilIdle() {
	over := time.NewTimer(g.store.Budget())
	defer over.Stop()
	for _, idle := range g.store.Idle() {
		select {
		case <-idle:
		case <-over.C:
			return
		}
	}
}
