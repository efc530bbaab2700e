package step

import "math/bits"

// slidingWindow counts units in windows aligned to the Unix epoch. It weighs the previous
// window's count by the fraction of that window that is in view: in the last period. See
// Cloudflare, "How we built rate limiting capable of scaling to millions of domains"
// (2017).
//
// State: A is the current window's start, B the units taken in it, C those in the window
// before.
type slidingWindow struct{ fixedWindow }

func (slidingWindow) At(s State, now int64, p Params) (State, bool) {
	begin := now - now%p.Period
	switch {
	case s.B == 0 && s.C == 0: // nothing was used, or all of it was refunded
		return State{A: begin}, false
	case s.A > now+p.Period: // a clock error: all units count now
		return State{A: begin, B: s.B, C: s.C}, true
	case s.A == begin-p.Period:
		return State{A: begin, C: s.B}, false
	case s.A < begin:
		return State{A: begin}, false
	}
	return s, false // the current window, or a later one because the clock stepped back
}

func (slidingWindow) Take(s State, now int64, p Params) (State, Placed, bool) {
	room := p.rate - s.B - p.Cost
	left := s.A + p.Period - now
	ok := room >= 0 && left <= inView(room, s.C, p.Period, left)
	return State{A: s.A, B: s.B + p.Cost, C: s.C}, Placed{At: s.A}, ok
}

// inView returns how much time of the current window may be left so that the last window's
// units in view fit into room: ⌊room·P/last⌋, computed so that every number stays below
// 2^53. If all of last fits, that is left.
func inView(room, last, period, left int64) int64 {
	if last <= room {
		return left
	}
	return room*(period/last) + room*(period%last)/last
}

// Left returns the rate less the used units and less ⌈last·left/P⌉, the last window's units
// in view.
func (slidingWindow) Left(s State, now int64, p Params) (remaining, resetAfter int64) {
	left := s.A + p.Period - now
	seen := s.C
	if left < p.Period {
		hi, lo := bits.Mul64(uint64(s.C), uint64(left))
		q, r := bits.Div64(hi, lo, uint64(p.Period))
		seen = int64(q)
		if r > 0 {
			seen++
		}
	}
	switch remaining = p.rate - s.B - seen; {
	case s.B > 0:
		return remaining, left + p.Period
	case s.C > 0:
		return remaining, left
	}
	return remaining, 0
}

func (slidingWindow) retryAfter(s State, now int64, p Params) int64 {
	left := s.A + p.Period - now
	if room := p.rate - s.B - p.Cost; room >= 0 {
		return left - inView(room, s.C, p.Period, left)
	}
	// The cost fits in the next window, when enough of this one is out of view.
	return left + p.Period - inView(p.rate-p.Cost, s.B, p.Period, p.Period)
}

func (w slidingWindow) Roll(cell State, now int64, p Params) State {
	cell, _ = w.At(cell, now, p)
	return cell
}

// UsedUntil fills the last window, which counts until the end of the current one. If until
// is later, it also fills the current one.
func (slidingWindow) UsedUntil(until, now int64, p Params) State {
	s := State{A: now - now%p.Period, C: MaxSquared}
	if until > s.A+p.Period {
		s.B = MaxSquared
	}
	return s
}

// UsedBefore counts units in the previous window, as many as can have been used then,
// because they become free sooner there.
func (w slidingWindow) UsedBefore(s State, now, units int64, p Params) (State, int64) {
	left := s.A + p.Period - now
	if left <= 0 || left > p.Period {
		return s, units // the window has not begun: a clock stepped back
	}
	remaining, _ := w.Left(s, now, p)
	want := remaining - units
	last := p.rate
	if hi, lo := bits.Mul64(uint64(units), uint64(p.Period)); hi < uint64(left) {
		weighed, rest := bits.Div64(hi, lo, uint64(left))
		if rest > 0 {
			weighed++
		}
		last = int64(min(uint64(s.C)+weighed, uint64(p.rate)))
	}
	s.C = max(s.C, last)
	remaining, _ = w.Left(s, now, p)
	return s, max(remaining-want, 0)
}
