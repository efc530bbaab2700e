package failmode

import (
	"context"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/memory"
)

// follow counts the store's decisions locally, at this process' share and in
// every mode, so that local counting is warm. It passes over keys that were banned,
// lifted or reset since the store was asked: it may have decided before.
func (g *Guard) follow(sent sending, results []algorithms.Result) {
	usual := g.denied.emptied.Load() == sent.emptied
	for i := range results { // a change of this moment may have lifted a ban, or begun one
		usual = usual && results[i].BannedFor == 0 && results[i].Check.Ban == (algorithms.Ban{})
	}
	if usual {
		followIn(&g.local, results, g.share)
		return
	}
	for i := range results {
		g.denied.unlessChanged(sent, &results[i].Check, func() { followIn(&g.local, results[i:i+1], g.share) })
	}
}

// ofStore reports whether the store decided a result, and not this process or nobody.
func ofStore(r *algorithms.Result) bool {
	switch r.Source {
	case "", algorithms.SourceDenyCache, algorithms.SourceLease, algorithms.SourceFallback, algorithms.SourceFailOpen, algorithms.SourceFailClosed:
		return false
	}
	return r.Err == nil
}

// shareOf returns the check by which a result of the store is counted locally.
func (g *Guard) shareOf(r *algorithms.Result) (algorithms.Check, bool) {
	if !ofStore(r) {
		return algorithms.Check{}, false
	}
	return g.shareOfCheck(r.Check), true
}

// shareOfCheck reduces a check's limit to this process' share. If the share is no
// valid limit, such as a rate that is too low for its burst, the limit stays whole.
func (g *Guard) shareOfCheck(c algorithms.Check) algorithms.Check {
	instances, quota := int64(g.instances()), c.Limit.Quota()
	if instances == 1 {
		return c
	}
	share, whole := min(max(quota/instances, c.Cost, 1), quota), c.Limit
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

// instances is the best known number of processes that share the limits.
func (g *Guard) instances() int {
	return int(max(int64(g.Instances), g.heartbeat.count.Load(), 1))
}

// stillOver returns a check's denial by a ban that is known, or the store's last
// denial until there would have been room: an outage is no amnesty.
func (g *Guard) stillOver(c *algorithms.Check) (algorithms.Result, bool) {
	var n memory.Count
	if lent.Count(c, &n) && lent.Memory(&g.local).Banned(&n) {
		d, _ := g.local.Peek(context.Background(), *c)
		d.Results[0].Source = algorithms.SourceFallback
		return d.Results[0], true
	}
	return g.denied.find(c)
}

// knownOver reports whether the store would deny a check, as far as is known here.
func (g *Guard) knownOver(c *algorithms.Check) bool {
	if g.ready(); g.invalid != nil {
		return false
	}
	_, over := g.stillOver(c)
	return over
}
