package step

// calendarWindow counts units in the windows of a [Calendar].
//
// State: A is the window's Date, B the units taken in it. Dates name the windows, so
// that processes whose zones' rules differ move a boundary and reset nothing.
type calendarWindow struct{ fixedWindow }

func (w calendarWindow) At(s State, now int64, p Params) (State, bool) {
	windows := p.calendar.Around(now)
	date := windows[1].Date
	switch {
	case s.B == 0: // nothing was used, or all of it given back
		return State{A: date}, false
	case s.A > windows[2].Date: // no clock that is right wrote this: all of it counts now
		return State{A: date, B: s.B}, true
	case s.A < date:
		return State{A: date}, false
	}
	return s, false // begun, or the next one because the clock stepped back
}

func (w calendarWindow) Left(s State, now int64, p Params) (remaining, resetAfter int64) {
	if s.B == 0 {
		return p.rate, 0
	}
	return p.rate - s.B, w.retryAfter(s, now, p)
}

func (calendarWindow) retryAfter(s State, now int64, p Params) int64 {
	windows := p.calendar.Around(now)
	if s.A > windows[1].Date {
		return windows[2].End - now
	}
	return windows[1].End - now
}

// Arguments appends the rate, the cost and, of the windows that may be now, when each
// begins and its date. If the store's clock is in none of them, it decides nothing.
func (calendarWindow) Arguments(args []any, p Params) []any {
	args = append(args, p.rate, p.Cost)
	var windows Windows
	if p.told != nil {
		windows = *p.told
	}
	for _, w := range windows {
		args = append(args, w.Begin, w.Date)
	}
	return args
}

func (w calendarWindow) Roll(cell State, now int64, p Params) State {
	cell, _ = w.At(cell, now, p)
	return cell
}

func (calendarWindow) UsedUntil(_, now int64, p Params) State {
	return State{A: p.calendar.Around(now)[1].Date, B: MaxUnits}
}
