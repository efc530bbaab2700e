package algorithms

// fixedWindow counts units in windows aligned to the Unix epoch.
//
// State: a is the window's start, b the units taken in it. Twin:
// lua/fixed_window.lua.
type fixedWindow struct {
	inCells
	asNow
}

func (w fixedWindow) at(s state, now int64, p params) (state, bool) {
	return w.rolled(s, now, p.period)
}

func (fixedWindow) rolled(s state, now, period int64) (state, bool) {
	begin := now - now%period
	switch {
	case s.b == 0: // nothing was used, or all of it given back
		return state{a: begin}, false
	case s.a > now+period: // no clock that is right wrote this: all of it counts now
		return state{a: begin, b: s.b}, true
	case s.a < begin:
		return state{a: begin}, false
	}
	return s, false // begun, or ahead because the clock stepped back
}

func (fixedWindow) take(s state, _ int64, p params) (state, placed, bool) {
	return state{a: s.a, b: s.b + p.cost}, placed{at: s.a}, s.b+p.cost <= p.rate
}

func (fixedWindow) correct(s state, _ int64, c *correction) state { return c.inWindows(s) }

func (fixedWindow) left(s state, now int64, p params) (remaining, resetAfter int64) {
	if s.b == 0 {
		return p.rate, 0
	}
	return p.rate - s.b, s.a + p.period - now
}

func (fixedWindow) retryAfter(s state, now int64, p params) int64 { return s.a + p.period - now }

func (fixedWindow) arguments(args []any, p params) []any {
	return append(args, p.rate, p.period, p.cost)
}

func (fixedWindow) corrections(args []any, c *correction) []any {
	return append(args, c.delta, c.placed.at, c.maxUsed)
}

func (w fixedWindow) roll(cell state, now, period int64) state {
	cell, _ = w.rolled(cell, now, period)
	return cell
}

func (fixedWindow) usedUntil(_, now int64, p params) state {
	return state{a: now - now%p.period, b: maxUnits}
}

// inWindows corrects a charge to windows. It gives back only to the window that
// was charged, wherever that is kept now, and charges more to the current one,
// as far as the exact range goes.
func (c *correction) inWindows(s state) state {
	switch begin := c.placed.at; {
	case c.delta > 0:
		s.b += min(c.delta, c.maxUsed-s.b)
	case s.a == begin:
		s.b = max(s.b+c.delta, 0)
	case s.a == begin+c.period: // sliding_window: rolled since
		s.c = max(s.c+c.delta, 0)
	}
	return s
}
