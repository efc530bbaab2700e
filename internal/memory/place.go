package memory

import (
	"math/bits"
	"sync"

	"github.com/seed75154129/ratelimit/internal/step"
	"github.com/seed75154129/ratelimit/internal/table"
)

const shardCount = 64 // as many as the bits of a shardSet

// An entry has the state of a count, but for the entries of a sliding log.
type entry = table.Entry[stored]

type stored struct{ a, b, c int64 }

type shard struct {
	mu       sync.Mutex
	table    table.Table[stored]
	logs     map[table.ID][]step.LogEntry // of sliding logs in the table
	sketches sketches

	evicted, overflowed uint64 // see Stats

	_ [8]byte // to whole cache lines, so that no two cores fight for one
}

// A place is where a count is stored.
type place struct {
	class
	hash  uint64 // of the key
	id    table.ID
	shard *shard
	entry *entry // of the count; nil if it has none
	moves uint64 // of the shard's table, when the entry was found

	estimated bool // the state comes from a sketch, or went to one; an entry may have been made of it in the same call
}

// place computes where a check is counted.
func (m *Store) place(pl *place, rule, key string, p *step.Params) {
	pl.class = class{rule, p.Counts(), p.Row}
	pl.id, pl.hash = m.seeds.ID(step.Name{Rule: rule, Key: key, Window: p.Window()})
	pl.shard = &m.shards[pl.hash%shardCount]
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
	pl.entry, pl.moves = pl.shard.table.Find(pl.id), pl.shard.table.Moves()
}

// found returns the entry that find has found, wherever it is now.
func (pl *place) found() *entry {
	if pl.moves != pl.shard.table.Moves() {
		pl.find()
	}
	return pl.entry
}

// load returns the place's state as it stands at now. The caller has called find. For a key without an entry, that is
// the estimate of a sketch, if there is one.
func (pl *place) load(now int64, p *step.Params) (current step.State, healed bool) {
	e := pl.found()
	if e == nil {
		if sk := pl.shard.sketches.find(&pl.class); sk != nil && !p.Held && !p.Own {
			pl.estimated = true
			return sk.estimate(pl.hashIn(sk), now, p), false
		}
		return p.At(step.State{}, now)
	}
	// Another check of this request must not evict this entry.
	e.Until = max(e.Until, now+1)
	return p.At(pl.shard.state(e, p), now)
}

// store stores a state that equals that of a key never seen at until. It goes to the key's
// entry, to a new one or, if the table is full, to a sketch.
func (pl *place) store(s step.State, until, now int64, p *step.Params, most int) {
	e := pl.found()
	if p.Held && s.A == 0 { // nothing is under way
		pl.shard.table.Remove(pl.id)
		return
	}
	if e == nil {
		if p.Own {
			most *= 2 // for bans in a flood of keys
		}
		room := pl.shard.hasRoom(now, most)
		if !room && p.Own {
			return
		}
		if !room && !p.Held { // there are only so many requests under way
			pl.estimated = true
			sk := pl.shard.sketches.need(pl.class, now)
			sk.raise(pl.hashIn(sk), s, until, now, p)
			return
		}
		e = pl.shard.table.Add(pl.id)
		pl.entry, pl.moves = e, pl.shard.table.Moves()
	}
	if p.Log {
		s = s.Written()
	}
	pl.shard.set(e, s, until, p)
}

// hashIn returns the hash that chooses the key's cells, of bits above those that chose the
// shard. Its seeds are secret, so clients cannot choose keys that share cells.
func (pl *place) hashIn(sk *sketch) uint64 {
	if sk.rest {
		return pl.id[0] / shardCount
	}
	return pl.hash / shardCount
}

// hasRoom reports whether the table can have one more entry. It evicts some entries that
// equal keys never seen.
func (s *shard) hasRoom(now int64, most int) bool {
	s.sketches.sweep(now)
	room, evicted := s.table.Room(now, most)
	s.evicted += evicted
	return room
}

func (s *shard) state(e *entry, p *step.Params) step.State {
	state := step.State{A: e.Value.a, B: e.Value.b, C: e.Value.c}
	if p.Log {
		state.Log = s.logs[e.ID]
	}
	return state
}

func (s *shard) set(e *entry, state step.State, until int64, p *step.Params) {
	e.Value, e.Until = stored{state.A, state.B, state.C}, until
	if !p.Log {
		return
	}
	if s.logs == nil {
		s.logs = make(map[table.ID][]step.LogEntry)
		s.table.Removed = func(id table.ID) { delete(s.logs, id) }
	}
	s.logs[e.ID] = state.Log
}
