package memory

import (
	"hash/maphash"
	"math/bits"
	"sync"

	"github.com/seed75154129/ratelimit/internal/step"
)

const (
	shardCount    = 64 // as many as the bits of lockedShards
	sweptPerKey   = 2  // entries looked at for each new one, so that old ones go
	sweptWhenFull = 8  // and where there is no room otherwise
)

type shard struct {
	mu       sync.Mutex
	table    table
	sketches sketches
	byHand   bool // a key was banned by hand, some time

	evicted, overflowed uint64 // see Stats
}

// A place is where the count of one check is kept.
type place struct {
	class
	hash  uint64 // of the key
	id    countID
	ban   countID // of the ban of the rule and the key
	shard *shard
	entry *entry // of this key alone; nil where there is none
	moves uint64 // of the shard's table, when the entry was found

	estimated bool // it is counted in a sketch, or was before there was room

	bans        bool // it obeys a ban
	bannedUntil int64
}

// place computes where a check is counted: by what tells counts apart in Redis, too.
func (m *Store) place(pl *place, rule, key string, p *step.Params) {
	const odd = 0x9e3779b97f4a7c15
	pl.class = class{rule, p.Counts(), p.Row}
	for i, seed := range m.seeds {
		hash := maphash.String(seed, key)
		if i == 0 {
			pl.hash, pl.shard = hash, &m.shards[hash%shardCount]
		}
		pl.ban[i] = (hash*odd ^ maphash.String(seed, rule)) * odd
		pl.id[i] = (pl.ban[i] ^ p.Counts()<<4 ^ p.Number) * odd // no two of one rule and key are the same
	}
	pl.ban[1] |= 1
	pl.id[1] |= 1
}

// lockedShards has a bit for each shard that is locked.
type lockedShards uint64

// lock locks the shards of the places, in their order, so that two requests
// never wait for each other.
func (m *Store) lock(counts []Count) lockedShards {
	var all lockedShards
	for i := range counts {
		all |= 1 << (counts[i].hash % shardCount)
	}
	for rest := all; rest != 0; rest &= rest - 1 {
		m.shards[bits.TrailingZeros64(uint64(rest))].mu.Lock()
	}
	return all
}

func (m *Store) unlock(locked lockedShards) {
	for rest := locked; rest != 0; rest &= rest - 1 {
		m.shards[bits.TrailingZeros64(uint64(rest))].mu.Unlock()
	}
}

// load finds the place's state as it stands at now. A key without an entry is
// bound by what a sketch says that it may have used.
func (pl *place) load(now int64, p *step.Params) (current step.State, healed bool) {
	e := pl.shard.table.find(pl.id)
	if pl.entry, pl.moves = e, pl.shard.table.moves; e == nil {
		if sk := pl.shard.sketches.find(&pl.class); sk != nil {
			pl.estimated = true
			return sk.estimate(pl, now, p), false
		}
		return p.At(step.State{}, now)
	}
	// Another check of this request may need room, but not this one's.
	e.until = max(e.until, now+1)
	return p.At(pl.shard.table.state(e, p), now)
}

// store remembers a state until it equals a key never seen; an entry that is
// new takes over what was estimated, since the state is made of that.
func (pl *place) store(s step.State, until, now int64, p *step.Params, most int) {
	e := pl.entry
	if pl.moves != pl.shard.table.moves {
		e = pl.shard.table.find(pl.id)
	}
	if e == nil {
		if !pl.shard.hasRoom(now, most) {
			pl.estimated = true
			pl.shard.sketches.need(pl.class, now).raise(pl, s, until, now, p)
			return
		}
		e = pl.shard.table.add(pl.id)
		pl.entry, pl.moves = e, pl.shard.table.moves
	}
	if p.Summary {
		s = s.Written()
	}
	pl.shard.table.set(e, s, until, p)
}

// hasRoom reports whether there is room for one more entry, and throws out
// what equals keys never seen.
func (s *shard) hasRoom(now int64, most int) bool {
	s.sketches.sweep(now)
	look := sweptPerKey
	if s.table.used >= most {
		look = sweptWhenFull
	}
	s.evicted += s.table.sweep(now, look)
	return s.table.used < most
}
