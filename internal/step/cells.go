package step

// sketched converts states to and from the cells of a sketch. A cell holds one state for
// many keys, so every conversion may only add units.
type sketched interface {
	// ToCell returns a state of constant size that has at least the units of s, and the
	// time at which that state equals that of a key never seen. For s, that is until.
	ToCell(s State, until, now int64, p Params) (State, int64)
	// Roll returns a cell as it stands at now. Rolled cells can be compared.
	Roll(cell State, now int64, p Params) State
	// FromCell returns a current state that has at least the units of every key in a
	// rolled cell.
	FromCell(cell State, now int64, p Params) State
	// UsedUntil returns a current state that admits nothing until a later time, at which
	// it equals that of a key never seen.
	UsedUntil(until, now int64, p Params) State
}

// inCells is for steps whose cells are plain states.
type inCells struct{}

func (inCells) ToCell(s State, until, _ int64, _ Params) (State, int64) { return s, until }

func (inCells) FromCell(cell State, _ int64, _ Params) State { return cell }

// Current returns the state as it stands at now.
func (p *Params) Current(s State, now int64) State {
	s, _ = p.At(s, now)
	return s
}

// followed adds units to a state that other processes have used at unknown times.
type followed interface {
	// UsedBefore counts units as used before now, as many as the current state allows,
	// and returns how many must still be counted as used now.
	UsedBefore(s State, now, units int64, p Params) (State, int64)
}

// asNow is for steps that count all such units as used now.
type asNow struct{}

func (asNow) UsedBefore(s State, _, units int64, _ Params) (State, int64) { return s, units }

// Least combines two states of the same time into the one that has fewer units: of buckets
// the earlier TAT, and of windows, which have the same start, the lesser counts.
func Least(s, t State) State {
	switch {
	case s.A < t.A:
		return s
	case s.A > t.A:
		return t
	}
	return State{A: s.A, B: min(s.B, t.B), C: min(s.C, t.C)}
}

// Most combines two states of the same time into the one that has more units.
func Most(s, t State) State {
	switch {
	case s.A > t.A:
		return s
	case s.A < t.A:
		return t
	}
	return State{A: s.A, B: max(s.B, t.B), C: max(s.C, t.C)}
}
