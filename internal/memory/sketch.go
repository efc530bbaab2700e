package memory

import "github.com/seed75154129/ratelimit/internal/step"

// The size of a sketch. Each shard has a sketch of this size, under the shard's lock.
const (
	sketchRows = 4
	sketchBits = 11 // of a key's hash for each row: 2048 cells in each shard, 131,072 in all
)

// A sketch estimates the states of any number of keys in constant memory: a count-min
// sketch (Cormode and Muthukrishnan, 2005) whose cells are states. A key has a cell in each
// row, which it shares with other keys. A cell has at least the units of each of its keys.
// So has the least of a key's cells, which is the estimate: it errs only towards denying.
// Cells are raised no further than the charged estimate (the "conservative update" of
// Estan and Varghese, 2002). Nothing is refunded, because other keys share the cells.
type sketch struct {
	class class // of the keys in it
	rest  bool  // it has the keys of all classes without a sketch of their own
	until int64 // Unix µs from which on every cell equals a key never seen
	cells [sketchRows][1 << sketchBits]cell
}

// A class is a set of keys whose states can be compared. Programs have few rules, so there
// are few classes.
type class struct {
	rule      string
	counts    uint64 // its period or calendar
	algorithm *step.Row
}

// A cell is a state, in the form of the step's ToCell. If classes share the sketch, only a is
// used: the time at which the state equals that of a key never seen.
type cell struct {
	a  int64
	bc uint64 // B; if there is a C too: the highest bit, then 31 bits for B and for C
}

func packed(s step.State) cell {
	if s.C == 0 {
		return cell{s.A, uint64(s.B)}
	}
	return cell{s.A, 1<<63 | uint64(s.B)<<32 | uint64(s.C)}
}

func (c *cell) state() step.State {
	if c.bc < 1<<63 {
		return step.State{A: c.a, B: int64(c.bc)}
	}
	return step.State{A: c.a, B: int64(c.bc << 1 >> 33), C: int64(uint32(c.bc))}
}

// estimate returns a state at now that has at least the units of the key with this hash.
func (sk *sketch) estimate(hash uint64, now int64, p *step.Params) step.State {
	s := sk.cell(0, hash).rolled(now, p, sk.rest)
	for row := 1; row < sketchRows; row++ {
		s = step.Least(s, sk.cell(row, hash).rolled(now, p, sk.rest))
	}
	switch {
	case !sk.rest:
		return p.Step.FromCell(s, now, *p)
	case s.A > now:
		return p.Current(p.Step.UsedUntil(s.A, now, *p), now)
	}
	return p.Current(step.State{}, now)
}

// raise raises the key's cells to at least the units of a state at now, which equals that of
// a key never seen at until.
func (sk *sketch) raise(hash uint64, s step.State, until, now int64, p *step.Params) {
	if sk.rest {
		s = step.State{A: until}
	} else {
		s, until = p.Step.ToCell(s, until, now, *p)
	}
	sk.until = max(sk.until, until)
	for row := range sketchRows {
		c := sk.cell(row, hash)
		*c = packed(step.Most(s, c.rolled(now, p, sk.rest)))
	}
}

// rolled returns the cell's state as it stands at now.
func (c *cell) rolled(now int64, p *step.Params, rest bool) step.State {
	if rest {
		return c.state()
	}
	return p.Step.Roll(c.state(), now, *p)
}

// cell returns a key's cell in a row.
func (sk *sketch) cell(row int, hash uint64) *cell {
	return &sk.cells[row][hash>>(row*sketchBits)%(1<<sketchBits)]
}
