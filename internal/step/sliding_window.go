package step

import "math/bits"

// slidingWindow counts units in windows aligned to the Unix epoch and weighs
// the previous window's count by the share of it that is still in view, as
// Cloudflare described in "How we built rate limiting capable of scaling to
// millions of domains" (2017).
//
// State: a is the current window's start, b the units taken in it, c those in
// the one before. Twin: internal/script/src/steps/sliding_window.lua.
type slidingWindow struct{ inCells }

func (w slidingWindow) At(s State, now int64, p Params) (State, bool) {
	return w.rolled(s, now, p.Period)
}

func (slidingWindow) rolled(s State, now, period int64) (State, bool) {
	begin := now - now%period
	switch {
	case s.B == 0 && s.C == 0: // nothing was used, or all of it given back
		return State{A: begin}, false
	case s.A > now+period: // no clock that is right wrote this: all of it counts now
		return State{A: begin, B: s.B, C: s.C}, true
	case s.A == begin-period:
		return State{A: begin, C: s.B}, false
	case s.A < begin:
		return State{A: begin}, false
	}
	return s, false // begun, or ahead because the clock stepped back
}

func (slidingWindow) Take(s State, now int64, p Params) (State, Placed, bool) {
	room := p.rate - s.B - p.Cost
	left := s.A + p.Period - now
	ok := room >= 0 && left <= inView(room, s.C, p.Period, left)
	return State{A: s.A, B: s.B + p.Cost, C: s.C}, Placed{At: s.A}, ok
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

func (slidingWindow) correct(s State, _ int64, c *Correction) State { return c.inWindows(s) }

// Left is the rate less what was used and ⌈last·left/P⌉, the last window's share
// in view.
func (slidingWindow) Left(s State, now int64, p Params) (remaining, resetAfter int64) {
	left := s.A + p.Period - now
	share := s.C
	if left < p.Period {
		hi, lo := bits.Mul64(uint64(s.C), uint64(left))
		q, r := bits.Div64(hi, lo, uint64(p.Period))
		share = int64(q)
		if r > 0 {
			share++
		}
	}
	switch remaining = p.rate - s.B - share; {
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
	// Only the next window has room, once enough of this one is out of view.
	return left + p.Period - inView(p.rate-p.Cost, s.B, p.Period, p.Period)
}

func (slidingWindow) Arguments(args []any, p Params) []any {
	return append(args, p.rate, p.Period, p.Cost)
}

func (slidingWindow) Corrections(args []any, c *Correction) []any {
	return append(args, c.Delta, c.Placed.At, c.maxUsed)
}

func (w slidingWindow) Roll(cell State, now int64, p Params) State {
	cell, _ = w.rolled(cell, now, p.Period)
	return cell
}

// UsedUntil: only the last window counts no longer than the current one.
func (slidingWindow) UsedUntil(until, now int64, p Params) State {
	s := State{A: now - now%p.Period, C: MaxSquared}
	if until > s.A+p.Period {
		s.B = MaxSquared
	}
	return s
}

// UsedBefore counts units in the window before this one, as far as they can
// have been used then: so they are free the sooner.
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
