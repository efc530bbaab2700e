package memory

// Stats say how full a Store is.
type Stats struct {
	Keys       int    // keys with a count of their own, and bans
	Sketches   int    // sketches in use, in the shard that has the most
	Evicted    uint64 // fully replenished keys that were evicted, since the start
	Overflowed uint64 // checks that were decided by a sketch, since the start
}

// Stats returns how full the Store is. It locks one shard after the other, so the numbers
// are not of the same instant.
func (m *Store) Stats() Stats {
	m.ready()
	var all Stats
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		all.Keys += s.table.used
		all.Sketches = max(all.Sketches, s.sketches.inUse(m.Now()))
		all.Evicted += s.evicted
		all.Overflowed += s.overflowed
		s.mu.Unlock()
	}
	return all
}
