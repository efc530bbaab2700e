package memory

// A Followed is another store's decision on a count. Times are in µs.
type Followed struct {
	Count                  Count
	Allowed                bool
	Charged, Remaining, At int64
	RetryAfter             int64

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
	current, _ := pl.load(now, p)
	switch {
	case p.Looks() && there.Allowed: // what was counted here is reset
		pl.shard.table.Remove(pl.id)
		return 0
	case p.Looks():
		until := now + there.RetryAfter
		pl.store(p.Step.UsedUntil(until, now, *p), until, now, p, m.most)
		return 0
	}
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
