package step

// sketched is what a step says about cells.
type sketched interface {
	// toCell returns a state of constant size that is no less than s, and when it
	// equals one never seen; s does at until.
	ToCell(s State, until, now int64, p Params) (State, int64)
	// roll returns a cell as it stands at now, so that cells compare.
	Roll(cell State, now int64, p Params) State
	// fromCell returns a current state that is no less than any in a cell as it
	// stands at now.
	FromCell(cell State, now int64, p Params) State
	// usedUntil returns a current state that admits nothing until a time after
	// now, at which it equals one never seen.
	UsedUntil(until, now int64, p Params) State
}

// inCells is for steps whose states are in cells as they are.
type inCells struct{}

func (inCells) ToCell(s State, until, _ int64, _ Params) (State, int64) { return s, until }

func (inCells) FromCell(cell State, _ int64, _ Params) State { return cell }

// Current is at without its second answer.
func (p *Params) Current(s State, now int64) State {
	s, _ = p.At(s, now)
	return s
}

// followed is what a step says about units that other processes have used.
type followed interface {
	// usedBefore counts units in a current state as used before now, as far as
	// it can tell, and returns how many are to be counted as used now.
	UsedBefore(s State, now, units int64, p Params) (State, int64)
}

// asNow is for steps that count all of them as used now.
type asNow struct{}

func (asNow) UsedBefore(s State, _, units int64, _ Params) (State, int64) { return s, units }

// Least is the lesser in each number of two states at the same time: of
// buckets the earlier TAT, and of windows, which begin together, the lesser
// counts.
func Least(s, t State) State {
	switch {
	case s.A < t.A:
		return s
	case s.A > t.A:
		return t
	}
	return State{A: s.A, B: min(s.B, t.B), C: min(s.C, t.C)}
}

// Most is the greater in each number.
func Most(s, t State) State {
	switch {
	case s.A > t.A:
		return s
	case s.A < t.A:
		return t
	}
	return State{A: s.A, B: max(s.B, t.B), C: max(s.C, t.C)}
}
