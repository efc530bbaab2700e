package algorithms

// MemoryStats say how full a [Memory] is. The numbers that end in "ever" only
// grow.
type MemoryStats struct {
	Keys       int    // with a count of their own
	Sketches   int    // that count keys without room, in the shard that has the most
	Evicted    uint64 // keys that had become like ones never seen and made room, ever
	Overflowed uint64 // checks decided by a sketch, ever
}

// Stats returns what the memory holds now. It locks one shard after the other,
// so the numbers are not of one moment.
func (m *Memory) Stats() MemoryStats {
	m.ready()
	var all MemoryStats
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		all.Keys += len(s.entries)
		all.Sketches = max(all.Sketches, s.sketches.inUse(m.now()))
		all.Evicted += s.evicted
		all.Overflowed += s.overflowed
		s.mu.Unlock()
	}
	return all
}
