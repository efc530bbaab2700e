package step

// fixedWindow counts units in windows aligned to the Unix epoch.
//
// State: A is the window's start, B the units taken in it.
type fixedWindow struct {
	inCells
	asNow
}

func (fixedWindow) At(s State, now int64, p Params) (State, bool) {
	begin := now - now%p.Period
	switch {
	case s.B == 0: // nothing was used, or all of it was refunded
		return State{A: begin}, false
	case s.A > now+p.Period: // a clock error: all units count now
		return State{A: begin, B: s.B}, true
	case s.A < begin:
		return State{A: begin}, false
	}
	return s, false // the current window, or a later one because the clock stepped back
}

func (fixedWindow) Take(s State, _ int64, p Params) (State, Placed, bool) {
	return State{A: s.A, B: s.B + p.Cost}, Placed{At: s.A}, s.B+p.Cost <= p.rate
}

// correct refunds only to the window that was charged, in B or C, and charges more to the
// current window, as far as the exact range goes.
func (fixedWindow) correct(s State, _ int64, c *Correction) State {
	switch begin := c.Placed.At; {
	case c.Delta > 0:
		s.B += min(c.Delta, c.maxUsed-s.B)
	case s.A == begin:
		s.B = max(s.B+c.Delta, 0)
	case s.A == begin+c.Period: // sliding_window: now the previous window
		s.C = max(s.C+c.Delta, 0)
	}
	return s
}

func (fixedWindow) Left(s State, now int64, p Params) (remaining, resetAfter int64) {
	if s.B == 0 {
		return p.rate, 0
	}
	return p.rate - s.B, s.A + p.Period - now
}

func (fixedWindow) retryAfter(s State, now int64, p Params) int64 { return s.A + p.Period - now }

func (fixedWindow) Arguments(args []any, p Params) []any {
	return append(args, p.rate, p.Period, p.Cost)
}

func (fixedWindow) Corrections(args []any, c *Correction) []any {
	return append(args, c.Delta, c.Placed.At, c.maxUsed)
}

func (w fixedWindow) Roll(cell State, now int64, p Params) State {
	cell, _ = w.At(cell, now, p)
	return cell
}

func (fixedWindow) UsedUntil(_, now int64, p Params) State {
	return State{A: now - now%p.Period, B: MaxUnits}
}
