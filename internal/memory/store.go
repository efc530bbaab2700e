// Package memory counts in this process, in bounded memory. It does not know checks and
// results: a Count is a check as numbers, together with its outcome.
//
// A key's counts are in one of 64 shards, each with a lock, a table and sketches. The table
// has an entry for each count. When it is full, keys without an entry are counted in
// sketches, which err only towards denying.
package memory

import (
	"cmp"
	"sync"
	"time"

	"github.com/seed75154129/ratelimit/internal/step"
	"github.com/seed75154129/ratelimit/internal/table"
)

// defaultMaxKeys is the bound of a Store whose MaxKeys is 0.
const defaultMaxKeys = 1 << 18

// A Store counts. Its zero value is ready. The fields must not change after first use.
type Store struct {
	MaxKeys int
	Clock   func() time.Time // nil: the wall clock at the start plus the monotonic clock

	once   sync.Once
	seeds  table.Seeds
	start  time.Time
	most   int // entries in a shard at most
	shards [shardCount]shard
}

// A Count is a check as numbers, and its outcome.
type Count struct {
	Rule, Key string
	step.Params
	Shadow bool

	Room    bool // the cost fits
	Charged int64
	Answer  step.Answer
	State   step.State  // from which Answer was computed
	Where   step.Placed // the charge

	charged step.State // the state if the request is admitted
	where   step.Placed
	place
}

func (m *Store) ready() {
	m.once.Do(func() {
		m.seeds, m.start = table.NewSeeds(), time.Now()
		m.most = max(cmp.Or(m.MaxKeys, defaultMaxKeys)/shardCount, 1)
	})
}

// Now returns the time in Unix µs. Without a Clock it never steps.
func (m *Store) Now() int64 {
	m.ready()
	if m.Clock != nil {
		return m.Clock().UnixMicro()
	}
	return m.start.UnixMicro() + time.Since(m.start).Microseconds()
}

// Decide fills in the outcome of a request's counts, and charges them if charge is set and
// the request is allowed.
func (m *Store) Decide(charge bool, counts []Count) (now int64, allowed bool) {
	m.ready()
	var shards shardSet
	for i := range counts {
		c := &counts[i]
		m.place(&c.place, c.Rule, c.Key, &c.Params)
		shards |= c.inSet()
	}
	m.lock(shards)
	defer m.unlock(shards)
	now = m.Now()
	return now, m.decideAt(now, charge, counts)
}

// decideAt is the twin of internal/script/take.lua. The caller has locked the shards.
func (m *Store) decideAt(now int64, charge bool, counts []Count) bool {
	for i := range counts {
		counts[i].find() // all at once: the processor waits for several entries as long as for one
	}
	allowed := true
	for i := range counts {
		c := &counts[i]
		current, healed := c.load(now, &c.Params)
		if healed && charge {
			c.store(current, c.Until(current, now), now, &c.Params, m.most)
		}
		c.State = current
		c.charged, c.where, c.Room = c.Take(current, now)
		allowed = allowed && (c.Room || c.Shadow)
	}
	for i := range counts {
		c := &counts[i]
		if charge && allowed && c.Room && !c.Looks() {
			c.Charged, c.State, c.Where = c.Cost, c.charged, c.where
		}
		c.Params.Answer(&c.Answer, c.Room, &c.State, c.where, now)
		if c.Charged > 0 {
			c.store(c.charged, c.Answer.Until, now, &c.Params, m.most)
		}
		if c.estimated {
			c.shard.overflowed++
		}
	}
	return allowed
}

// Settle corrects a charge. It is the twin of internal/script/settle.lua. It refunds nothing
// to a sketch, because store only raises cells.
func (m *Store) Settle(rule, key string, c *step.Correction) (settled step.State, now int64) {
	m.ready()
	var pl place
	m.place(&pl, rule, key, &c.Params)
	pl.shard.mu.Lock()
	defer pl.shard.mu.Unlock()
	now = m.Now()
	return m.settleAt(now, &pl, c), now
}

// settleAt corrects a charge in a place whose shard is locked.
func (m *Store) settleAt(now int64, pl *place, c *step.Correction) step.State {
	pl.find()
	current, healed := pl.load(now, &c.Params)
	settled, changed := c.Settle(current, healed, now)
	if changed {
		pl.store(settled, c.Until(settled, now), now, &c.Params, m.most)
	}
	return settled
}

// Reset forgets the counts. Those in a sketch stay.
func (m *Store) Reset(counts []Count) {
	m.ready()
	for i := range counts {
		c := &counts[i]
		m.place(&c.place, c.Rule, c.Key, &c.Params)
		c.shard.mu.Lock()
		if !c.Held { // who runs is counted, whatever is forgotten
			c.shard.table.Remove(c.id)
		}
		c.shard.mu.Unlock()
	}
}

// Stats say how full a Store is.
type Stats struct {
	Keys       int    // keys with a count of their own
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
		all.Keys += s.table.Len()
		all.Sketches = max(all.Sketches, s.sketches.inUse(m.Now()))
		all.Evicted += s.evicted
		all.Overflowed += s.overflowed
		s.mu.Unlock()
	}
	return all
}
