package memory

import "github.com/seed75154129/ratelimit/internal/step"

// A Followed is another store's decision on a count. Times are in µs.
type Followed struct {
	Count                  Count
	Allowed, Banned        bool
	Charged, Remaining, At int64
	BannedFor              int64

	Units int64 // the outcome: those of the charge that were counted here, which Settle can refund
}

// Follow mirrors the decisions of another store on a request: it counts the units here that
// the other store has counted. It never goes into debt.
func (m *Store) Follow(all []Followed) {
	m.ready()
	var shards shardSet
	for i := range all {
		c := &all[i].Count
		m.place(&c.place, c.Rule, c.Key, &c.Params)
		shards |= c.inSet()
	}
	m.lock(shards)
	defer m.unlock(shards)
	now := m.Now()
	for i := range all {
		all[i].Count.find() // all at once, as in decideAt
	}
	for i := range all {
		all[i].Units = m.followAt(now, &all[i])
	}
}

// followAt follows one decision. The caller has locked the shard, and called find.
func (m *Store) followAt(now int64, there *Followed) (followed int64) {
	c := &there.Count
	p, pl := &c.Params, &c.place
	if c.followBan(now, there, m.most); there.Banned {
		return 0 // Remaining of a banned key does not say what was used
	}
	current, _ := pl.load(now, p)
	left, _ := p.Step.Left(current, now, *p)
	left = max(left, 0)
	if followed = min(max(there.Charged, 0), left); p.Held {
		followed, left = there.Charged, 0 // exactly what runs here, above the share too
	}
	over := left - followed - max(there.Remaining, 0) // used there by other processes
	if !p.SameWindow(there.At, now) {
		over = 0
	}
	if over > 0 && there.Allowed {
		current, over = p.Step.UsedBefore(current, now, over, *p)
		pl.store(current, p.Until(current, now), now, p, m.most)
	}
	units := followed + max(over, 0)
	if units == 0 {
		return followed
	}
	p.SetCost(units)
	current, _, _ = p.Take(current, now)
	pl.store(current, p.Until(current, now), now, p, m.most)
	return followed
}

// followBan sets or lifts the count's ban as another store reported. For a check without a
// Ban, the store reports bans by hand only. For a check with a Ban it reports both kinds: a
// new one is stored as the rule's own ban.
func (c *Count) followBan(now int64, there *Followed, most int) {
	switch {
	case there.Banned:
		if c.hasRoomForBan(now, most) {
			byHand := c.banState(now).ByHand || !c.Bans
			c.storeBan(step.Ban{}, step.Denials{Since: now, Until: now + there.BannedFor, ByHand: byHand})
		}
	case c.Bans, c.shard.byHand && !c.Shadow && c.banState(now).ByHand:
		c.shard.table.Remove(c.ban)
	}
}
