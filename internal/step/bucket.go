package step

import "math/bits"

// bucket is the step of the token bucket and its other forms: the generic cell rate
// algorithm of ITU-T I.371. It remembers one time, TAT, at which the bucket will be full
// again. A request fits if TAT is then at most the time to refill a whole bucket ahead of
// now. TAT has a fraction with the rate as its denominator, so nothing is rounded.
//
// State: TAT is A + C/rate µs. B is how many ms TAT was ahead of the clock when the state
// was written, which says when that was. A TAT that is far ahead is not a clock error: a
// slower limit shares the key, or the key has a debt.
type bucket struct{ asNow }

func (bucket) At(s State, now int64, p Params) (State, bool) {
	wrote := s.A - s.A%1000 - s.B*1000
	switch {
	case wrote > now+p.Period: // a clock error: the debt is as large as it was then
		return State{A: now + s.A - wrote, C: min(s.C, p.rate-1)}.writtenAt(now), true
	case s.A < now:
		return State{A: now}, false
	case s.C >= p.rate: // written at a higher rate
		return State{A: s.A, B: s.B, C: p.rate - 1}, false
	}
	return s, false
}

func (bucket) Take(s State, now int64, p Params) (State, Placed, bool) {
	s = p.later(s, p.costW, p.costF).writtenAt(now)
	return s, Placed{At: now}, s.A < now+p.roomW || s.A == now+p.roomW && s.C <= p.roomF
}

// writtenAt sets B for a state that is written now.
func (s State) writtenAt(now int64) State {
	s.B = s.A/1000 - now/1000
	return s
}

// later moves TAT ahead by w + f/rate µs.
func (p *Params) later(s State, w, f int64) State {
	w, f = s.A+w, s.C+f
	if f >= p.rate {
		w, f = w+1, f-p.rate
	}
	return State{A: w, B: s.B, C: f}
}

// earlier moves TAT back by w + f/rate µs, possibly to before now.
func (p *Params) earlier(s State, w, f int64) State {
	w, f = s.A-w, s.C-f
	if f < 0 {
		w, f = w-1, f+p.rate
	}
	return State{A: w, B: s.B, C: f}
}

// notBefore makes a state current again after earlier.
func (s State) notBefore(now int64) State {
	if s.A < now {
		return State{A: now}
	}
	return s
}

// correct charges more units, as far as the exact range goes. A TAT beyond that range was
// not charged here, and stays. correct refunds at most what the bucket has not refilled
// since the charge: otherwise the bucket would admit more than it ever held. If the clock
// was far ahead at the charge, it refunds nothing.
func (bucket) correct(s State, now int64, c *Correction) State {
	w, f := c.refill(max(c.Delta, -c.Delta))
	if c.Delta > 0 {
		more := c.later(s, w, f)
		if more.A >= MaxDuration {
			more = Most(s, State{A: MaxDuration})
		}
		return s.corrected(more, now)
	}
	chargeW, chargeF := c.refill(c.Units)
	if chargeW -= max(now-c.Placed.At, 0); chargeW < w || chargeW == w && chargeF < f {
		w, f = chargeW, chargeF
	}
	if w < 0 || c.Placed.At > now+c.Period {
		return s
	}
	return s.corrected(c.earlier(s, w, f).notBefore(now), now)
}

// corrected returns the other state, as written now if it differs.
func (s State) corrected(other State, now int64) State {
	if other.A != s.A || other.C != s.C {
		return other.writtenAt(now)
	}
	return s
}

// Left returns ⌊(now + full − TAT)·rate/period⌋, and the time until TAT.
func (bucket) Left(s State, now int64, p Params) (remaining, resetAfter int64) {
	resetAfter = s.ceil() - now
	full := p.earlier(State{A: now + p.fullW, C: p.fullF}, s.A, s.C)
	if full.A >= 0 {
		hi, lo := bits.Mul64(uint64(full.A), uint64(p.rate))
		lo, carry := bits.Add64(lo, uint64(full.C), 0)
		q, _ := bits.Div64(hi+carry, lo, uint64(p.Period))
		return int64(q), resetAfter
	}
	// In debt: full.A is negative, and full.C is a positive fraction.
	hi, lo := bits.Mul64(uint64(-full.A), uint64(p.rate))
	lo, borrow := bits.Sub64(lo, uint64(full.C), 0)
	if hi -= borrow; hi >= uint64(p.Period) {
		return -MaxExact, resetAfter
	}
	q, r := bits.Div64(hi, lo, uint64(p.Period))
	if r > 0 {
		q++
	}
	return -int64(min(q, MaxExact)), resetAfter
}

// ceil rounds TAT up to a whole microsecond.
func (s State) ceil() int64 {
	if s.C > 0 {
		return s.A + 1
	}
	return s.A
}

func (bucket) retryAfter(s State, now int64, p Params) int64 {
	s = p.later(s, p.costW, p.costF)
	after := s.A - now - p.roomW
	if s.C > p.roomF {
		after++
	}
	return after
}

func (bucket) Arguments(args []any, p Params) []any {
	return append(args, p.rate, p.costW, p.costF, p.roomW, p.roomF, p.Period)
}

func (bucket) Corrections(args []any, c *Correction) []any {
	w, f := c.refill(max(c.Delta, -c.Delta))
	chargeW, chargeF := c.refill(c.Units)
	return append(args, c.Delta, c.Placed.At, c.Placed.frac, w, f, chargeW, chargeF)
}

// ToCell drops B: a cell is written for many keys.
func (bucket) ToCell(s State, until, _ int64, _ Params) (State, int64) {
	return State{A: s.A, B: s.C}, until
}

// Roll changes nothing, because the cell's TAT may have been charged at another rate.
func (bucket) Roll(cell State, _ int64, _ Params) State { return cell }

func (bucket) FromCell(cell State, now int64, p Params) State {
	return p.Current(State{A: cell.A, C: cell.B}.writtenAt(now), now)
}

func (bucket) UsedUntil(until, now int64, _ Params) State { return State{A: until}.writtenAt(now) }
