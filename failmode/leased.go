package failmode

import (
	"context"
	"slices"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/lease"
	"github.com/seed75154129/ratelimit/internal/monitor"
)

// maxSettled is how many blocks are refunded in one call. All that a process may
// have are fewer calls than may run in the background.
const maxSettled = 100

// leasable reports whether a check's units may come from a block.
func leasable(c *algorithms.Check) bool { return c.Lease && !c.Shadow }

// spendBlocks charges checks to blocks if those have the units, and passes the other
// checks on. If the others deny the request, what was spent goes back into its block.
func (g *Guard) spendBlocks(ctx context.Context, checks []algorithms.Check) (algorithms.Decision, error) {
	if algorithms.Validate(checks...) != nil {
		return g.nameHeld(ctx, checks) // the store says what is wrong
	}
	now, instances := time.Now(), int64(g.instances())
	d := algorithms.Decision{Allowed: true, Results: make([]algorithms.Result, len(checks))}
	var few [4]*lease.Lease
	found := few[:0]
	var rest []int
	for i := range checks {
		c := &checks[i]
		var l *lease.Lease
		spent := false
		if leasable(c) {
			var next int64
			var left *algorithms.Charge
			if l, left = g.leases.FindOrMake(c, now); left != nil {
				g.refundBlocks(*left)
			}
			if spent, next, left = l.Spend(c, now, instances, &d.Results[i]); left != nil {
				g.refundLater(ctx, *left)
			}
			if next > 0 {
				g.refill(ctx, l, *c, next)
			}
		}
		if found = append(found, l); !spent {
			rest = append(rest, i)
		}
	}
	if len(rest) == 0 {
		return d, nil
	}
	others := checks
	if len(rest) < len(checks) {
		others = pick(checks, rest)
	}
	there, err := g.nameHeld(ctx, others)
	if err != nil || !there.Allowed {
		for i, l := range found {
			if r := &d.Results[i]; r.Charged > 0 {
				l.PutBack(r.Trace.Charge.At, r.Charged)
				r.Remaining += r.Charged
				r.Charged = 0
			}
		}
	}
	if err != nil {
		return algorithms.Decision{}, err
	}
	for j, i := range rest {
		r := &there.Results[j]
		if l := found[i]; l != nil && ofStore(r) {
			l.Saw(r)
			r.Remaining += l.Left(now)
		}
		d.Results[i] = *r
	}
	d.Allowed = there.Allowed
	return d, nil
}

// refill asks the store for a block, in the background. The block is a part of what
// the store had left, so that it is mostly granted. If not, requests ask one by one
// until the store says that it has more.
func (g *Guard) refill(ctx context.Context, l *lease.Lease, c algorithms.Check, units int64) {
	c.Cost = units
	ctx = context.WithoutCancel(ctx)
	begun := g.work.Begin(func() {
		resets := g.resets.Load()
		r, sent := g.chargeBlock(ctx, &c, resets)
		left := l.Refilled(r, sent)
		if g.resets.Load() != resets {
			g.leases.Drop(&c) // the store may no longer count the block
		}
		l.RefundInTime(func(left algorithms.Charge) { g.refundBlocks(left) })
		if left.Result.Charged > 0 {
			g.refund(ctx, left)
		}
	})
	if !begun {
		l.Refilled(nil, time.Time{})
	}
}

// chargeBlock has the store charge a block. It returns nil if the store does not grant
// it, or is away. If no answer comes, the block is lost until the window ends.
func (g *Guard) chargeBlock(ctx context.Context, c *algorithms.Check, resets uint64) (granted *algorithms.Result, sent time.Time) {
	circuit := g.monitor.Circuit(g.store.Shard(c))
	if circuit.IsOpen() {
		return nil, sent
	}
	ctx, cancel := g.store.Within(ctx)
	defer cancel()
	sent = time.Now()
	var d algorithms.Decision
	err := g.work.Safely(func() (err error) {
		d, err = g.Limiter.Take(ctx, *c)
		return err
	})
	results, err := resultsOf(d, err, []algorithms.Check{*c})
	g.monitor.Report(ctx, sent, []*monitor.Circuit{circuit}, results, err)
	r := &results[0]
	if !ofStore(r) {
		return nil, sent
	}
	g.follow(resets, results)
	if exact := r.Trace.Known; !exact {
		if r.Charged > 0 { // a store of the user's own, which does not say where it counts
			g.refund(ctx, algorithms.Charge{Result: *r})
		}
		return nil, sent
	}
	if r.Charged > 0 {
		g.granted.Store(r.Source)
	}
	return r, sent
}

// addBlocks adds this process' blocks to what the store has left.
func (g *Guard) addBlocks(d *algorithms.Decision) {
	added := false
	for i := range d.Results {
		r := &d.Results[i]
		if !leasable(&r.Check) || !ofStore(r) {
			continue
		}
		if l := g.leases.Find(&r.Check); l != nil {
			left := l.Left(time.Now())
			if r.Remaining += left; !r.HasRoom && left >= max(r.Check.Cost, 1) {
				r.HasRoom, r.RetryAfter, added = true, 0, true
			}
		}
	}
	if !added {
		return
	}
	d.Allowed = true
	for i := range d.Results {
		d.Allowed = d.Allowed && !d.Results[i].Denies()
	}
}

// refundBlocks refunds what is left of blocks.
func (g *Guard) refundBlocks(left ...algorithms.Charge) {
	left = slices.DeleteFunc(left, func(c algorithms.Charge) bool { return c.Result.Charged == 0 })
	for charges := range slices.Chunk(left, maxSettled) {
		g.refundLater(context.Background(), charges...)
	}
}
