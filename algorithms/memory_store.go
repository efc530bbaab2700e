package algorithms

import (
	"hash/maphash"
	"math/bits"
	"strings"
	"sync"
)

const (
	memoryShards  = 64 // as many as the bits of lockedShards
	sweptPerKey   = 2  // entries looked at for each new one, so that old ones go
	sweptWhenFull = 8  // and where there is no room otherwise
)

type memoryShard struct {
	mu       sync.Mutex
	entries  map[memoryKey]*entry
	sketches sketches
	byHand   bool // a key was banned by hand, some time

	evicted, overflowed uint64 // see bridge.MemoryStats
}

// A memoryKey tells counts apart as a key in Redis does.
type memoryKey struct {
	class
	key string
}

type entry struct {
	state
	until int64 // Unix µs from which on it equals a key never seen
}

// A place is where the count of one check is kept.
type place struct {
	key   memoryKey
	hash  uint64
	shard *memoryShard
	entry *entry // of this key alone; nil where there is none

	estimated bool // it is counted in a sketch, or was before there was room

	current state  // as it stands now
	charged state  // as it will if the request is admitted
	where   placed // of the charge then

	bans        bool // the check obeys a ban
	bannedUntil int64
}

// place computes where a check is counted. Long keys are hashed, so that
// nobody outside chooses how much is stored.
func (m *Memory) place(c *Check, p *params) place {
	key := c.Key
	if len(key) > maxPart || strings.HasPrefix(key, "#") {
		var room [maxPart]byte
		key = string(appendPart(room[:0], key))
	}
	hash := maphash.String(m.seed, key)
	return place{
		key:   memoryKey{class{c.Rule, p.period, p.algorithm}, key},
		hash:  hash,
		shard: &m.shards[hash%memoryShards],
	}
}

// lockedShards has a bit for each shard that is locked.
type lockedShards uint64

// lock locks the shards of the places, in their order, so that two requests
// never wait for each other.
func (m *Memory) lock(places []place) lockedShards {
	var all lockedShards
	for i := range places {
		all |= 1 << (places[i].hash % memoryShards)
	}
	for rest := all; rest != 0; rest &= rest - 1 {
		m.shards[bits.TrailingZeros64(uint64(rest))].mu.Lock()
	}
	return all
}

func (m *Memory) unlock(locked lockedShards) {
	for rest := locked; rest != 0; rest &= rest - 1 {
		m.shards[bits.TrailingZeros64(uint64(rest))].mu.Unlock()
	}
}

// load finds the place's state as it stands at now. A key without an entry is
// bound by what a sketch says that it may have used.
func (pl *place) load(now int64, p *params) (current state, healed bool) {
	e := pl.shard.entries[pl.key]
	if pl.entry = e; e == nil {
		if sk := pl.shard.sketches.find(&pl.key.class); sk != nil {
			pl.estimated = true
			return sk.estimate(pl, now, p), false
		}
		return p.at(state{}, now)
	}
	// Another check of this request may need room, but not this one's.
	e.until = max(e.until, now+1)
	return p.at(e.state, now)
}

// store remembers a state until it equals a key never seen; an entry that is
// new takes over what was estimated, since the state is made of that.
func (pl *place) store(s state, until, now int64, p *params, most int) {
	e := pl.entry
	if e == nil {
		if !pl.shard.hasRoom(now, most) {
			pl.estimated = true
			pl.shard.sketches.need(pl.key.class, now).raise(pl, s, until, now, p)
			return
		}
		e = new(entry)
		// The caller's strings may be parts of large ones, such as headers.
		pl.key.rule, pl.key.key = strings.Clone(pl.key.rule), strings.Clone(pl.key.key)
		pl.shard.entries[pl.key] = e
	}
	if p.summary {
		s = s.written()
	}
	e.state, e.until = s, until
}

// hasRoom reports whether there is room for one more entry, and throws out
// what equals keys never seen.
func (s *memoryShard) hasRoom(now int64, most int) bool {
	s.sketches.sweep(now)
	look := sweptPerKey
	if len(s.entries) >= most {
		look = sweptWhenFull
	}
	for key, e := range s.entries {
		if look--; look < 0 {
			break
		}
		if e.until <= now {
			delete(s.entries, key)
			s.evicted++
		}
	}
	return len(s.entries) < most
}
