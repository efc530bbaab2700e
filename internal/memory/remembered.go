package memory

// Remembered returns until when a count and its key's denials must be remembered; 0 if there
// are none. TestConformance of package algorithms compares these times with the lifetimes
// of keys in Redis.
func (m *Store) Remembered(c *Count, now int64) (count, denials int64, byHand bool) {
	m.ready()
	m.place(&c.place, c.Rule, c.Key, &c.Params)
	c.shard.mu.Lock()
	defer c.shard.mu.Unlock()
	if e := c.shard.table.find(c.id); e != nil {
		count = c.Until(c.Current(c.shard.table.state(e, &c.Params), now), now)
	}
	if e := c.shard.table.find(c.ban); e != nil {
		denials, byHand = e.until, c.banState(now).ByHand
	}
	return count, denials, byHand
}
