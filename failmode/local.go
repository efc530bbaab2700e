package failmode

import (
	"slices"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/memory"
	"github.com/seed75154129/ratelimit/internal/step"
)

// follow counts the store's decisions locally, at this process' share and in every
// mode. If keys were reset here since the store was asked, it does
// nothing: the store may have decided before.
func (g *Guard) follow(resets uint64, results []algorithms.Result) {
	if g.resets.Load() != resets {
		return
	}
	followIn(&g.local, results, g)
}

// followIn counts in a memory what another store decided, at the Guard's share.
func followIn(m *algorithms.Memory, results []algorithms.Result, g *Guard) {
	for few := range slices.Chunk(results, 4) {
		var room [4]memory.Followed
		var of [4]*algorithms.Result
		n := 0
		for i := range few {
			r, f := &few[i], &room[n]
			if !g.countOf(r, &f.Count) || g.foundRoomBefore(r) {
				continue
			}
			f.Allowed, f.Charged, f.Remaining = r.HasRoom, r.Charged, r.Remaining
			f.At, f.RetryAfter = r.At.UnixMicro(), r.RetryAfter.Microseconds()
			of[n] = r
			n++
		}
		m.Store().Follow(room[:n])
		for i, r := range of[:n] {
			r.Trace.Followed = room[i].Units
		}
	}
}

// foundRoomBefore reports whether a look that had room was asked before a denial of it that
// is still known: had it been asked later, the denial would be forgotten.
func (g *Guard) foundRoomBefore(r *algorithms.Result) bool {
	if !r.Check.Look || !r.HasRoom {
		return false
	}
	_, known := g.denied.Find(&r.Check)
	return known
}

// unfollowIn makes what followIn charged for a charge cost what the charge costs since it
// was settled. A charge to a sliding_log or a leaky_bucket is found only if the clocks agree
// to the microsecond, and stays otherwise.
func unfollowIn(m *algorithms.Memory, charge, settled *algorithms.Result, g *Guard) {
	trace := charge.Trace
	is := max(trace.Followed+settled.Charged-charge.Charged, 0)
	var n memory.Count
	if trace.Followed == 0 || is == trace.Followed || !g.countOf(charge, &n) {
		return
	}
	m.Store().Settle(n.Rule, n.Key, &step.Correction{Params: n.Params, Placed: trace.Charge, Units: trace.Followed, Delta: is - trace.Followed})
	settled.Trace.Followed = is
}

// countOf fills in the count by which a result of the store is counted locally; false if
// it is not.
func (g *Guard) countOf(r *algorithms.Result, n *memory.Count) bool {
	if !ofStore(r) {
		return false
	}
	if g.instances() == 1 {
		return r.Check.Count(n)
	}
	c := g.shareOfCheck(r.Check)
	return c.Count(n)
}

// shareOfCheck reduces a check's limit to this process' share: of a bucket, burst and rate. If the share is no
// valid limit, such as a rate that is too low for its burst, the limit stays whole.
func (g *Guard) shareOfCheck(c algorithms.Check) algorithms.Check {
	instances, quota := int64(g.instances()), c.Limit.Quota()
	if instances == 1 {
		return c
	}
	least := max(c.Cost, 1)
	if c.Look {
		least = step.Look
	}
	share, whole := min(max(quota/instances, least), quota), c.Limit
	if c.Limit.Burst > 0 {
		c.Limit.Burst = share
		c.Limit.Rate = max(c.Limit.Rate/instances, 1)
	} else {
		c.Limit.Rate = share
	}
	if c.Limit.Validate() != nil {
		c.Limit = whole
	}
	return c
}
