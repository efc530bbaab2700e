package memory

import (
	"hash/maphash"
	"math/bits"
	"sync"

	"github.com/seed75154129/ratelimit/internal/step"
)

const (
	shardCount    = 64 // as many as the bits of a shardSet
	sweptPerKey   = 2  // entries that are checked for eviction with each new one
	sweptWhenFull = 8  // the same while the table is full
)

type shard struct {
	mu       sync.Mutex
	table    table
	sketches sketches
	byHand   bool // at least one key was banned by hand since the start

	evicted, overflowed uint64 // see Stats
}

// A place is where a count is stored.
type place struct {
	class
	hash  uint64 // of the key
	id    countID
	ban   countID // of the ban of the rule and the key
	shard *shard
	entry *entry // of the count; nil if it has none
	moves uint64 // of the shard's table, when the entry was found

	estimated bool // the state comes from a sketch, or went to one; an entry may have been made of it in the same call

	bans        bool // the count obeys bans
	denied      bool // its denial counts towards the ban
	bannedUntil int64
}

// place computes where a check is counted. Counts have different places if they have
// different keys in Redis.
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

// shardSet has a bit for each of some shards.
type shardSet uint64

func (pl *place) inSet() shardSet { return 1 << (pl.hash % shardCount) }

// lock locks shards in their order, so that two requests cannot deadlock.
func (m *Store) lock(shards shardSet) {
	for rest := shards; rest != 0; rest &= rest - 1 {
		m.shards[bits.TrailingZeros64(uint64(rest))].mu.Lock()
	}
}

func (m *Store) unlock(shards shardSet) {
	for rest := shards; rest != 0; rest &= rest - 1 {
		m.shards[bits.TrailingZeros64(uint64(rest))].mu.Unlock()
	}
}

// find looks up the place's entry.
func (pl *place) find() {
	pl.entry, pl.moves = pl.shard.table.find(pl.id), pl.shard.table.moves
}

// found returns the entry that find has found, wherever it is now.
func (pl *place) found() *entry {
	if pl.moves != pl.shard.table.moves {
		pl.find()
	}
	return pl.entry
}

// load returns the place's state as it stands at now. The caller has called find. For a key without an entry, that is
// the estimate of a sketch, if there is one.
func (pl *place) load(now int64, p *step.Params) (current step.State, healed bool) {
	e := pl.found()
	if e == nil {
		if sk := pl.shard.sketches.find(&pl.class); sk != nil && !p.Held {
			pl.estimated = true
			return sk.estimate(pl.hashIn(sk), now, p), false
		}
		return p.At(step.State{}, now)
	}
	// Another check of this request must not evict this entry.
	e.until = max(e.until, now+1)
	return p.At(pl.shard.table.state(e, p), now)
}

// store stores a state that equals that of a key never seen at until. It goes to the key's
// entry, to a new one or, if the table is full, to a sketch.
func (pl *place) store(s step.State, until, now int64, p *step.Params, most int) {
	e := pl.found()
	if p.Held && s.A == 0 { // nothing is under way
		pl.shard.table.remove(pl.id)
		return
	}
	if e == nil {
		if !pl.hasRoom(now, most) && !p.Held { // there are only so many requests under way
			pl.estimated = true
			sk := pl.shard.sketches.need(pl.class, now)
			sk.raise(pl.hashIn(sk), s, until, now, p)
			return
		}
		e = pl.shard.table.add(pl.id)
		pl.entry, pl.moves = e, pl.shard.table.moves
	}
	if p.Log {
		s = s.Written()
	}
	pl.shard.table.set(e, s, until, p)
}

// hashIn returns the hash that chooses the key's cells, of bits above those that chose the
// shard. Its seeds are secret, so clients cannot choose keys that share cells.
func (pl *place) hashIn(sk *sketch) uint64 {
	if sk.rest {
		return pl.id[0] / shardCount
	}
	return pl.hash / shardCount
}

// hasRoom reports whether the place's count has an entry or can have one.
func (pl *place) hasRoom(now int64, most int) bool {
	return pl.found() != nil || pl.shard.hasRoom(now, most)
}

// hasRoom reports whether the table can have one more entry. It evicts some entries that
// equal keys never seen.
func (s *shard) hasRoom(now int64, most int) bool {
	s.sketches.sweep(now)
	entries := sweptPerKey
	if s.table.used >= most {
		entries = sweptWhenFull
	}
	s.evicted += s.table.sweep(now, entries)
	return s.table.used < most
}
