package memory

import "github.com/seed75154129/ratelimit/internal/inside"

// Stats returns what the memory holds now. It locks one shard after the other,
// so the numbers are not of one moment.
func (m *Store) Stats() inside.MemoryStats {
	m.ready()
	var all inside.MemoryStats
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
