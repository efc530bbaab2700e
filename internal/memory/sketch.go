package algorithms

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

// A cell is a state of its class, in the form that the step gives it there.
// Where classes share a sketch, only a is used: when the state will equal one
// never seen.
type cell struct {
	a  int64
	bc uint64 // b, or where there is a c, which leaves 31 bits for each, both and the highest bit
}

func packed(s state) cell {
	if s.c == 0 {
		return cell{s.a, uint64(s.b)}
	}
	return cell{s.a, 1<<63 | uint64(s.b)<<32 | uint64(s.c)}
}

func (c *cell) state() state {
	if c.bc < 1<<63 {
		return state{a: c.a, b: int64(c.bc)}
	}
	return state{a: c.a, b: int64(c.bc << 1 >> 33), c: int64(uint32(c.bc))}
}

// sketched is what a step says about cells.
type sketched interface {
	// toCell returns a state of constant size that is no less than s, and when it
	// equals one never seen; s does at until.
	toCell(s state, until, now int64, p params) (state, int64)
	// roll returns a cell as it stands at now, so that cells compare.
	roll(cell state, now, period int64) state
	// fromCell returns a current state that is no less than any in a cell as it
	// stands at now.
	fromCell(cell state, now int64, p params) state
	// usedUntil returns a current state that admits nothing until a time after
	// now, at which it equals one never seen.
	usedUntil(until, now int64, p params) state
}

// inCells is for steps whose states are in cells as they are.
type inCells struct{}

func (inCells) toCell(s state, until, _ int64, _ params) (state, int64) { return s, until }

func (inCells) fromCell(cell state, _ int64, _ params) state { return cell }

// current is at without its second answer.
func (p *params) current(s state, now int64) state {
	s, _ = p.at(s, now)
	return s
}

// estimate returns a state at now that is no less than the key's own.
func (sk *sketch) estimate(pl *place, now int64, p *params) state {
	hash := sk.hash(pl)
	s := sk.cell(0, hash).rolled(now, p, sk.rest)
	for row := 1; row < sketchRows; row++ {
		s = least(s, sk.cell(row, hash).rolled(now, p, sk.rest))
	}
	switch {
	case !sk.rest:
		return p.step.fromCell(s, now, *p)
	case s.a > now:
		return p.current(p.step.usedUntil(s.a, now, *p), now)
	}
	return p.current(state{}, now)
}

// raise makes the key's cells no less than a state at now, which equals one
// never seen at until.
func (sk *sketch) raise(pl *place, s state, until, now int64, p *params) {
	if sk.rest {
		s = state{a: until}
	} else {
		s, until = p.step.toCell(s, until, now, *p)
	}
	sk.until = max(sk.until, until)
	hash := sk.hash(pl)
	for row := range sketchRows {
		c := sk.cell(row, hash)
		*c = packed(most(s, c.rolled(now, p, sk.rest)))
	}
}

// rolled returns what is in the cell at now.
func (c *cell) rolled(now int64, p *params, rest bool) state {
	if rest {
		return c.state()
	}
	return p.step.roll(c.state(), now, p.period)
}

// cell finds a key's cell in a row, by bits of the hash above those that chose
// the shard.
func (sk *sketch) cell(row int, hash uint64) *cell {
	return &sk.cells[row][hash/memoryShards>>(row*sketchBits)%(1<<sketchBits)]
}

// hash tells a sketch's keys apart. Nobody outside can choose whose cells to
// share.
func (sk *sketch) hash(pl *place) uint64 {
	if sk.rest {
		return pl.id[0]
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
