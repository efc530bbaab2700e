package algorithms

import "math/bits"

// slidingWindow counts units in windows aligned to the Unix epoch and weighs
// the previous window's count by the share of it that is still in view, as
// Cloudflare described in "How we built rate limiting capable of scaling to
// millions of domains" (2017).
//
// State: a is the current window's start, b the units taken in it, c those in
// the one before. Twin: lua/sliding_window.lua.
type slidingWindow struct{ inCells }

func (w slidingWindow) at(s state, now int64, p params) (state, bool) {
	return w.rolled(s, now, p.period)
}

func (slidingWindow) rolled(s state, now, period int64) (state, bool) {
	begin := now - now%period
	switch {
	case s.b == 0 && s.c == 0: // nothing was used, or all of it given back
		return state{a: begin}, false
	case s.a > now+period: // no clock that is right wrote this: all of it counts now
		return state{a: begin, b: s.b, c: s.c}, true
	case s.a == begin-period:
		return state{a: begin, c: s.b}, false
	case s.a < begin:
		return state{a: begin}, false
	}
	return s, false // begun, or ahead because the clock stepped back
}

func (slidingWindow) take(s state, now int64, p params) (state, placed, bool) {
	room := p.rate - s.b - p.cost
	left := s.a + p.period - now
	ok := room >= 0 && left <= inView(room, s.c, p.period, left)
	return state{a: s.a, b: s.b + p.cost, c: s.c}, placed{at: s.a}, ok
}

// inView is how much of the current window may be left so that the last
// window's share in view fits into room: ⌊room·P/last⌋, computed so that every
// step stays below 2^53. Where all of last fits, any time may be left.
func inView(room, last, period, left int64) int64 {
	if last <= room {
		return left
	}
	return room*(period/last) + room*(period%last)/last
}

func (slidingWindow) correct(s state, _ int64, c *correction) state { return c.inWindows(s) }

// left is the rate less what was used and ⌈last·left/P⌉, the last window's share
// in view.
func (slidingWindow) left(s state, now int64, p params) (remaining, resetAfter int64) {
	left := s.a + p.period - now
	share := s.c
	if left < p.period {
		hi, lo := bits.Mul64(uint64(s.c), uint64(left))
		q, r := bits.Div64(hi, lo, uint64(p.period))
		share = int64(q)
		if r > 0 {
			share++
		}
	}
	switch remaining = p.rate - s.b - share; {
	case s.b > 0:
		return remaining, left + p.period
	case s.c > 0:
		return remaining, left
	}
	return remaining, 0
}

func (slidingWindow) retryAfter(s state, now int64, p params) int64 {
	left := s.a + p.period - now
	if room := p.rate - s.b - p.cost; room >= 0 {
		return left - inView(room, s.c, p.period, left)
	}
	// Only the next window has room, once enough of this one is out of view.
	return left + p.period - inView(p.rate-p.cost, s.b, p.period, p.period)
}

func (slidingWindow) arguments(args []any, p params) []any {
	return append(args, p.rate, p.period, p.cost)
}

func (slidingWindow) corrections(args []any, c *correction) []any {
	return append(args, c.delta, c.placed.at, c.maxUsed)
}

func (w slidingWindow) roll(cell state, now, period int64) state {
	cell, _ = w.rolled(cell, now, period)
	return cell
}

// usedUntil: only the last window counts no longer than the current one.
func (slidingWindow) usedUntil(until, now int64, p params) state {
	s := state{a: now - now%p.period, c: maxSquared}
	if until > s.a+p.period {
		s.b = maxSquared
	}
	return s
}

// usedBefore counts units in the window before this one, as far as they can
// have been used then: so they are free the sooner.
func (w slidingWindow) usedBefore(s state, now, units int64, p params) (state, int64) {
	left := s.a + p.period - now
	if left <= 0 || left > p.period {
		return s, units // the window has not begun: a clock stepped back
	}
	remaining, _ := w.left(s, now, p)
	want := remaining - units
	last := p.rate
	if hi, lo := bits.Mul64(uint64(units), uint64(p.period)); hi < uint64(left) {
		weighed, rest := bits.Div64(hi, lo, uint64(left))
		if rest > 0 {
			weighed++
		}
		last = int64(min(uint64(s.c)+weighed, uint64(p.rate)))
	}
	s.c = max(s.c, last)
	remaining, _ = w.left(s, now, p)
	return s, max(remaining-want, 0)
}
