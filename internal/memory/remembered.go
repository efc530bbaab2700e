package memory

// Remembered returns until when the Store remembers a count, and the denials of its
// key: 0 if it remembers nothing. Tests compare this with the lifetimes of keys in
// Redis.
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
