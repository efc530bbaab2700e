package algorithms

import "math/bits"

// bucket is the step that the token bucket and its other forms share: the
// generic cell rate algorithm of ITU-T I.371. It remembers one time, TAT, at
// which the bucket will be full again, and admits while that is at most the
// time of a whole bucket ahead. TAT counts in fractions over the rate, so no
// rate loses anything to rounding.
//
// State: a + b/rate is TAT in µs. Twin: lua/bucket.lua.
type bucket struct {
	inCells
	asNow
}

func (bucket) at(s state, now int64, p params) (state, bool) {
	switch {
	case s.a < now:
		return s.notBefore(now), false
	case s.a > now+p.fullW+p.period: // no clock that is right wrote this
		return state{a: now + p.fullW, b: p.fullF}, true
	case s.b >= p.rate: // written at a higher rate
		return state{a: s.a, b: p.rate - 1}, false
	}
	return s, false
}

func (bucket) take(s state, now int64, p params) (state, placed, bool) {
	s = p.later(s, p.costW, p.costF)
	return s, placed{at: now}, s.a < now+p.fullW || s.a == now+p.fullW && s.b <= p.fullF
}

// later moves TAT ahead.
func (p *params) later(s state, w, f int64) state {
	w, f = s.a+w, s.b+f
	if f >= p.rate {
		w, f = w+1, f-p.rate
	}
	return state{a: w, b: f}
}

// earlier moves TAT back, maybe before now.
func (p *params) earlier(s state, w, f int64) state {
	w, f = s.a-w, s.b-f
	if f < 0 {
		w, f = w-1, f+p.rate
	}
	return state{a: w, b: f}
}

// notBefore makes a state current again whose TAT was moved back.
func (s state) notBefore(now int64) state {
	if s.a < now {
		return state{a: now}
	}
	return s
}

// correct charges more up to one period beyond a whole bucket. It gives back at
// most what the charge's time has not refilled since: a bucket that is given
// back more would admit what it never held.
func (bucket) correct(s state, now int64, c *correction) state {
	w, f := c.refill(c.clip(max(c.delta, -c.delta)))
	if c.delta > 0 {
		s = c.later(s, w, f)
		if most := now + c.fullW + c.period; s.a >= most {
			s = state{a: most}
		}
		return s
	}
	chargeW, chargeF := c.refill(c.clip(c.units))
	if chargeW -= max(now-c.placed.at, 0); chargeW < w || chargeW == w && chargeF < f {
		w, f = chargeW, chargeF
	}
	if w < 0 {
		return s
	}
	return c.earlier(s, w, f).notBefore(now)
}

// clip bounds units to what a bucket and a period can hold together, so that
// their time stays inside the exact range.
func (p *params) clip(units int64) int64 {
	hi, lo := bits.Mul64(uint64(p.fullW+1), uint64(p.rate))
	bucket, _ := bits.Div64(hi, lo, uint64(p.period))
	return min(units, int64(bucket)+p.rate+1)
}

// left is ⌊(now + full − TAT)·rate/period⌋, and until TAT.
func (bucket) left(s state, now int64, p params) (remaining, resetAfter int64) {
	resetAfter = s.ceil() - now
	w, f := now+p.fullW-s.a, p.fullF-s.b
	if f < 0 {
		w, f = w-1, f+p.rate
	}
	if w < 0 {
		return 0, resetAfter
	}
	hi, lo := bits.Mul64(uint64(w), uint64(p.rate))
	lo, carry := bits.Add64(lo, uint64(f), 0)
	q, _ := bits.Div64(hi+carry, lo, uint64(p.period))
	return int64(q), resetAfter
}

// ceil is the first whole microsecond that is not before TAT.
func (s state) ceil() int64 {
	if s.b > 0 {
		return s.a + 1
	}
	return s.a
}

func (bucket) retryAfter(s state, now int64, p params) int64 {
	s = p.later(s, p.costW, p.costF)
	after := s.a - now - p.fullW
	if s.b > p.fullF {
		after++
	}
	return after
}

func (bucket) arguments(args []any, p params) []any {
	return append(args, p.rate, p.costW, p.costF, p.fullW, p.fullF, p.fullW+p.period)
}

func (bucket) corrections(args []any, c *correction) []any {
	w, f := c.refill(c.clip(max(c.delta, -c.delta)))
	chargeW, chargeF := c.refill(c.clip(c.units))
	return append(args, c.delta, c.placed.at, c.placed.frac, w, f, chargeW, chargeF)
}

// roll leaves a cell alone: its TAT may have been charged at another rate.
func (bucket) roll(cell state, _ int64, _ params) state { return cell }

// fromCell: a TAT that is further ahead than this key can owe was charged to
// another at a slower rate. It binds this one as the deepest debt would.
func (b bucket) fromCell(cell state, now int64, p params) state {
	if deepest := now + p.fullW + p.period; cell.a > deepest {
		cell = state{a: deepest, b: p.rate - 1}
	}
	s, _ := b.at(cell, now, p)
	return s
}

func (bucket) usedUntil(until, now int64, p params) state {
	return state{a: min(until, now+p.fullW+p.period)}
}
