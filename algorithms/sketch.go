package algorithms

import "hash/maphash"

// The size of a sketch. A part of it is in each shard of a Memory, under the
// shard's lock.
const (
	sketchRows = 4
	sketchBits = 11 // of a key's hash for each row: 2048 cells in each shard, 131,072 in all
)

// A sketch estimates the states of any number of keys in constant memory: a
// count-min sketch (Cormode and Muthukrishnan, 2005) whose cells are states. A
// key has a cell in each row. A cell is at least what each of its keys has used,
// and so is the least of a key's cells: estimates err only towards denying.
// Cells are raised no further than the charged estimate (the "conservative
// update" of Estan and Varghese, 2002). Nothing is given back, since it could be
// another key's.
type sketch struct {
	class class // whose keys it counts
	rest  bool  // it counts the keys of all classes that have none of their own
	until int64 // Unix µs from which on every cell equals one never seen
	cells [sketchRows][1 << sketchBits]cell
}

// A cell is a state of its class. A log has no constant size: its units are
// counted in windows, as sliding_window does. Where classes share a sketch, only
// a is used: when the state will equal one never seen.
type cell struct {
	a    int64
	b, c uint32 // units of a window, or a fraction: at most maxRate
}

// estimate returns a state at now that is no less than the key's own.
func (sk *sketch) estimate(pl *place, now int64, p *params) state {
	hash := sk.hash(pl)
	s := sk.cell(0, hash).rolled(now, p, sk.rest)
	for row := 1; row < sketchRows; row++ {
		s = least(s, sk.cell(row, hash).rolled(now, p, sk.rest))
	}
	switch {
	case sk.rest:
		return p.usedUntil(s.a, now)
	case p.code == codeSlidingLog:
		return p.logOf(s, now)
	}
	// A TAT that is further ahead than this key can owe was charged to another
	// at a slower rate. It binds this one as the deepest debt would.
	if deepest := now + p.fullW + p.period; p.bucket && s.a > deepest {
		s = state{a: deepest, b: p.rate - 1}
	}
	s, _ = p.at(s, now, p)
	return s
}

// raise makes the key's cells no less than a state at now.
func (sk *sketch) raise(pl *place, s state, now int64, p *params) {
	switch {
	case sk.rest:
		s = state{a: now + p.resetAfter(s, now, p)}
	case p.code == codeSlidingLog:
		s = p.windowsOf(s, now)
	}
	if sk.rest {
		sk.until = max(sk.until, s.a)
	} else {
		sk.until = max(sk.until, now+p.inCells().resetAfter(s, now, p))
	}
	hash := sk.hash(pl)
	for row := range sketchRows {
		c := sk.cell(row, hash)
		raised := most(s, c.rolled(now, p, sk.rest))
		*c = cell{raised.a, uint32(raised.b), uint32(raised.c)}
	}
}

// rolled returns what is in the cell, windows as they stand at now.
func (c *cell) rolled(now int64, p *params, rest bool) state {
	s := state{a: c.a, b: int64(c.b), c: int64(c.c)}
	if !rest && !p.bucket {
		s, _ = p.inCells().at(s, now, p)
	}
	return s
}

// cell finds a key's cell in a row, by bits of the hash above those that chose
// the shard.
func (sk *sketch) cell(row int, hash uint64) *cell {
	return &sk.cells[row][hash/memoryShards>>(row*sketchBits)%(1<<sketchBits)]
}

var restSeed = maphash.MakeSeed()

// hash tells a sketch's keys apart. Nobody outside can choose whose cells to
// share.
func (sk *sketch) hash(pl *place) uint64 {
	if sk.rest {
		return maphash.Comparable(restSeed, pl.key)
	}
	return pl.hash
}

// least is the lesser in each number of two states at the same time: of
// buckets the earlier TAT, and of windows, which begin together, the lesser
// counts.
func least(s, t state) state {
	switch {
	case s.a < t.a:
		return s
	case s.a > t.a:
		return t
	}
	return state{a: s.a, b: min(s.b, t.b), c: min(s.c, t.c)}
}

// most is the greater in each number.
func most(s, t state) state {
	switch {
	case s.a > t.a:
		return s
	case s.a < t.a:
		return t
	}
	return state{a: s.a, b: max(s.b, t.b), c: max(s.c, t.c)}
}

// inCells is the algorithm whose states are in the cells.
func (p *params) inCells() *algorithm {
	if p.code == codeSlidingLog {
		return slidingWindows
	}
	return p.algorithm
}

var slidingWindows, _ = lookup(SlidingWindow)

// windowsOf counts a log's units in the windows in which they came.
func (p *params) windowsOf(log state, now int64) state {
	s := state{a: now - now%p.period}
	for _, e := range log.log {
		if e.at >= s.a {
			s.b += e.units
		} else {
			s.c += e.units
		}
	}
	return s
}

// logOf makes a log of windows, with all units at the last moments of theirs: so
// none leaves it sooner than the key's own would.
func (p *params) logOf(s state, now int64) state {
	log := state{a: s.b + s.c, log: make([]logEntry, 0, 3)} // room for a charge
	for _, e := range [...]logEntry{{s.a - 1, s.c}, {s.a + p.period - 1, s.b}} {
		if e.units > 0 {
			log.log = append(log.log, e)
		}
	}
	log, _ = slidingLog{}.at(log, now, p)
	return log
}

// usedUntil is a state that admits nothing until a time, when it equals one
// never seen.
func (p *params) usedUntil(until, now int64) state {
	begin := now - now%p.period
	s := state{}
	switch {
	case until <= now:
	case p.bucket:
		s.a = min(until, now+p.fullW+p.period)
	case p.code == codeSlidingLog:
		s = state{a: p.rate, log: []logEntry{{min(until-p.period, now+p.period), p.rate}}}
	case p.code == codeFixedWindow || until > begin+p.period:
		s = state{a: begin, b: maxRate, c: maxRate}
	default: // of sliding_window, only the last window counts so long
		s = state{a: begin, c: maxRate}
	}
	s, _ = p.at(s, now, p)
	return s
}
