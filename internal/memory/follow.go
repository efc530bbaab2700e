package memory

// A Followed is another store's decision on a count. Times are in µs.
type Followed struct {
	Allowed, Banned        bool
	Charged, Remaining, At int64
	BannedFor              int64
}

// Follow mirrors the decision of another store: it counts the units here that the other
// store has counted. It returns how many of them are for this charge, which Settle can
// refund. It never goes into debt.
func (m *Store) Follow(c *Count, there *Followed) (followed int64) {
	m.ready()
	p := c.Params
	m.place(&c.place, c.Rule, c.Key, &p)
	pl := &c.place
	pl.shard.mu.Lock()
	defer pl.shard.mu.Unlock()
	now := m.Now()
	if c.followBan(now, there, m.most); there.Banned {
		return 0 // Remaining of a banned key does not say what was used
	}
	pl.find()
	current, _ := pl.load(now, &p)
	left, _ := p.Step.Left(current, now, p)
	left = max(left, 0)
	if followed = min(max(there.Charged, 0), left); p.Held {
		followed, left = there.Charged, 0 // exactly what runs here, above the share too
	}
	over := left - followed - max(there.Remaining, 0) // used there by other processes
	if !p.SameWindow(there.At, now) {
		over = 0
	}
	if over > 0 && there.Allowed {
		current, over = p.Step.UsedBefore(current, now, over, p)
		pl.store(current, p.Until(current, now), now, &p, m.most)
	}
	units := followed + max(over, 0)
	if units == 0 {
		return followed
	}
	p.SetCost(units)
	current, _, _ = p.Take(current, now)
	pl.store(current, p.Until(current, now), now, &p, m.most)
	return followed
}
