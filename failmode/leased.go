package failmode

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/step"
)

// maxSettled is how many blocks are given back in one call. All that a process may
// have are fewer calls than may run in the background.
const maxSettled = 100

// takeLeased takes from blocks what is there, and the other checks as ever. If
// these deny, what was taken goes back into its block.
func (g *Guard) takeLeased(ctx context.Context, checks []algorithms.Check) (algorithms.Decision, error) {
	if !valid(checks) {
		return g.take(ctx, checks) // the store says what is wrong
	}
	now, instances := time.Now(), int64(g.instances())
	d := algorithms.Decision{Allowed: true, Results: lent.NewResults(len(checks))}
	var room [4]*lease
	found := room[:0]
	var rest []int
	for i := range checks {
		c := &checks[i]
		var l *lease
		spent := false
		if leasable(c) {
			var replaced *lease
			if l, replaced = g.leases.findOrMake(c, now); replaced != nil {
				g.giveBackUnits(replaced.end())
			}
			var next int64
			var left *algorithms.Charge
			if spent, next, left = l.spend(c, now, instances, &d.Results[i]); left != nil {
				g.giveBack(ctx, *left)
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
	asked := checks
	if len(rest) < len(checks) {
		asked = pick(checks, rest)
	}
	there, err := g.take(ctx, asked)
	if err != nil || !there.Allowed {
		for i, l := range found {
			if r := &d.Results[i]; r.Charged > 0 {
				l.putBack(lent.Trace(r).Charge.At, r.Charged)
				r.Remaining += r.Charged
				r.Charged = 0
			}
		}
	}
	if err != nil {
		return algorithms.Decision{}, err
	}
	for j, i := range rest {
		r := answerTo(&there, j, &checks[i])
		if r == nil { // left out, as the decision does of its own checks
			r = &algorithms.Result{Check: checks[i]}
		} else if l := found[i]; l != nil && ofStore(r) {
			l.saw(r)
			r.Remaining += l.left(now)
		}
		d.Results[i] = *r
	}
	d.Allowed = there.Allowed
	return d, nil
}

// refill asks the store for a block, in the background. What is asked for is a
// part of what is left, so that it is mostly granted; if not, requests ask one by
// one until the store says that there is more.
func (g *Guard) refill(ctx context.Context, l *lease, c algorithms.Check, units int64) {
	c.Cost = units
	ctx = context.WithoutCancel(ctx)
	begun := g.work.begin(func() {
		asked := g.denied.sending()
		r, sent := g.askBlock(ctx, &c, asked)
		var left algorithms.Charge
		if !g.denied.unlessChanged(asked, &c, func() { left = l.refilled(r, sent) }) {
			l.refilled(nil, time.Time{}) // after a Reset nobody counts the block
		}
		g.endInTime(l)
		if left.Result.Charged > 0 {
			g.giveBackNow(ctx, left)
		}
	})
	if !begun {
		l.refilled(nil, time.Time{})
	}
}

// askBlock charges a block; nil if the store does not grant it, or is away. What
// is unknown is lost until the window ends.
func (g *Guard) askBlock(ctx context.Context, c *algorithms.Check, asked sending) (granted *algorithms.Result, sent time.Time) {
	var look lookup
	if g.denied.used.Load() {
		look = g.denied.look(c, asked.at) // a second look is for requests
	}
	answered := false
	defer func() {
		if !answered {
			g.denied.release(&look, false)
		}
	}()
	shard := g.breaker.circuit(g.store.Shard(c))
	if look.outcome != mayAsk || shard.isOpen() {
		return nil, sent
	}
	ctx, cancel := g.store.Within(ctx)
	defer cancel()
	sent = time.Now()
	var d algorithms.Decision
	err := g.work.safely(func() (err error) {
		d, err = g.Limiter.Take(ctx, *c)
		return err
	})
	results := align([]algorithms.Check{*c}, d, err)
	g.breaker.report(ctx, sent, []*circuit{shard}, results)
	g.breaker.calls.count(sent, d, err)
	r := &results[0]
	if !ofStore(r) {
		return nil, sent
	}
	answered = true
	g.denied.learn(asked, &look, r)
	g.follow(asked, results)
	if exact := lent.Trace(r).Known; !exact {
		if r.Charged > 0 { // a store of the user's own, which does not say where it counts
			g.giveBackNow(ctx, algorithms.Charge{Result: *r})
		}
		return nil, sent
	}
	if r.Charged > 0 {
		g.leases.source.Store(r.Source)
	}
	return r, sent
}

// settleLeased settles charges to blocks. What is given back goes into the same
// block, or nowhere; what costs more is charged to the store's window.
func (g *Guard) settleLeased(ctx context.Context, charges []algorithms.Charge) ([]algorithms.Result, error) {
	results := make([]algorithms.Result, len(charges))
	var errs []error
	for i, ch := range charges {
		r := &results[i]
		*r = ch.Result
		source, granted := g.leases.source.Load().(algorithms.Source)
		switch {
		case r.Charged == 0 || ch.Cost == r.Charged || !granted:
		case ch.Cost < r.Charged:
			lent.SettleBy(r, ch.Cost, func(units int64) bool {
				l := g.leases.find(&r.Check)
				if l == nil || !l.putBack(lent.Trace(r).Charge.At, -units) {
					return false
				}
				r.Remaining -= units
				return true
			})
		default:
			stored := *r
			stored.Source = source // also where the lease is gone
			settled, err := g.settleStore(ctx, []algorithms.Charge{{Result: stored, Cost: ch.Cost}})
			if errs = append(errs, err); err == nil {
				*r = settled[0]
				r.Source = algorithms.SourceLease
				lent.Trace(r).Charge = step.Placed{At: lent.Trace(&ch.Result).Charge.At}
			}
		}
	}
	return results, errors.Join(errs...)
}

// addBlocks adds the own blocks to what the store has left. Of a key that is banned
// it drops them.
func (g *Guard) addBlocks(d *algorithms.Decision) {
	added := false
	for i := range d.Results {
		r := &d.Results[i]
		if !leasable(&r.Check) || !ofStore(r) {
			continue
		}
		if l := g.leases.find(&r.Check); l != nil {
			if r.BannedFor > 0 {
				l.saw(r)
				continue
			}
			left := l.left(time.Now())
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

// endInTime has what is left of a lease's block given back at the end of its life.
// A request that would do so may never come.
func (g *Guard) endInTime(l *lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch rest := time.Until(l.sent.Add(l.life)); {
	case l.units == 0:
	case l.ends == nil:
		l.ends = time.AfterFunc(rest, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			g.giveBackUnits(l.take())
		})
	default:
		l.ends.Reset(rest)
	}
}

// giveBackUnits gives back what is left of blocks.
func (g *Guard) giveBackUnits(left ...algorithms.Charge) {
	left = slices.DeleteFunc(left, func(c algorithms.Charge) bool { return c.Result.Charged == 0 })
	for charges := range slices.Chunk(left, maxSettled) {
		g.giveBack(context.Background(), charges...)
	}
}

// returnBlocks ends all leases and gives back what they have not spent.
func (g *Guard) returnBlocks() {
	var left []algorithms.Charge
	for i := range g.leases.shards {
		s := &g.leases.shards[i]
		s.mu.Lock()
		s.closed = true
		for _, l := range s.keys {
			left = append(left, l.end())
		}
		clear(s.keys)
		s.mu.Unlock()
	}
	g.giveBackUnits(left...)
}
