package algorithms

import "math/bits"

// bucket is the step that the token bucket and its other forms share: the
// generic cell rate algorithm of ITU-T I.371. It remembers one time, TAT, at
// which the bucket will be full again, and admits while that is at most the
// time of a whole bucket ahead. TAT counts in fractions over the rate, so no
// rate loses anything to rounding.
//
// State: a + c/rate is TAT in µs, and b is how many ms that was ahead of the clock
// when it was written, which tells when that was. A TAT that is far ahead is no
// clock error: a limit with a slower rate shares the key, or there is a debt. Twin:
// lua/bucket.lua.
type bucket struct{ asNow }

func (bucket) at(s state, now int64, p params) (state, bool) {
	wrote := s.a - s.a%1000 - s.b*1000 // when
	switch {
	case wrote > now+p.period: // no clock that is right: it owes what it owed then
		return state{a: now + s.a - wrote, c: min(s.c, p.rate-1)}.writtenAt(now), true
	case s.a < now:
		return state{a: now}, false
	case s.c >= p.rate: // written at a higher rate
		return state{a: s.a, b: s.b, c: p.rate - 1}, false
	}
	return s, false
}

func (bucket) take(s state, now int64, p params) (state, placed, bool) {
	s = p.later(s, p.costW, p.costF).writtenAt(now)
	return s, placed{at: now}, s.a < now+p.roomW || s.a == now+p.roomW && s.c <= p.roomF
}

// writtenAt notes that a state is written now.
func (s state) writtenAt(now int64) state {
	s.b = s.a/1000 - now/1000
	return s
}

// later moves TAT ahead.
func (p *params) later(s state, w, f int64) state {
	w, f = s.a+w, s.c+f
	if f >= p.rate {
		w, f = w+1, f-p.rate
	}
	return state{a: w, b: s.b, c: f}
}

// earlier moves TAT back, maybe before now.
func (p *params) earlier(s state, w, f int64) state {
	w, f = s.a-w, s.c-f
	if f < 0 {
		w, f = w-1, f+p.rate
	}
	return state{a: w, b: s.b, c: f}
}

// notBefore makes a state current again whose TAT was moved back.
func (s state) notBefore(now int64) state {
	if s.a < now {
		return state{a: now}
	}
	return s
}

// correct charges more, as far as the exact range goes; what is beyond it
// already was not charged here, and stays. It gives back at most what the
// charge's time has not refilled since: a bucket that is given back more would
// admit what it never held. By a clock that was far ahead, nobody knows.
func (bucket) correct(s state, now int64, c *correction) state {
	w, f := c.refill(max(c.delta, -c.delta))
	if c.delta > 0 {
		more := c.later(s, w, f)
		if more.a >= maxDuration {
			more = most(s, state{a: maxDuration})
		}
		return s.corrected(more, now)
	}
	chargeW, chargeF := c.refill(c.units)
	if chargeW -= max(now-c.placed.at, 0); chargeW < w || chargeW == w && chargeF < f {
		w, f = chargeW, chargeF
	}
	if w < 0 || c.placed.at > now+c.period {
		return s
	}
	return s.corrected(c.earlier(s, w, f).notBefore(now), now)
}

// corrected is the other state, written now if it differs.
func (s state) corrected(other state, now int64) state {
	if other.a != s.a || other.c != s.c {
		return other.writtenAt(now)
	}
	return s
}

// left is ⌊(now + full − TAT)·rate/period⌋, and until TAT.
func (bucket) left(s state, now int64, p params) (remaining, resetAfter int64) {
	resetAfter = s.ceil() - now
	full := p.earlier(state{a: now + p.fullW, c: p.fullF}, s.a, s.c)
	if full.a >= 0 {
		hi, lo := bits.Mul64(uint64(full.a), uint64(p.rate))
		lo, carry := bits.Add64(lo, uint64(full.c), 0)
		q, _ := bits.Div64(hi+carry, lo, uint64(p.period))
		return int64(q), resetAfter
	}
	// In debt: the time is full.a whole microseconds, less than 0, and a fraction.
	hi, lo := bits.Mul64(uint64(-full.a), uint64(p.rate))
	lo, borrow := bits.Sub64(lo, uint64(full.c), 0)
	if hi -= borrow; hi >= uint64(p.period) {
		return -maxExact, resetAfter
	}
	q, r := bits.Div64(hi, lo, uint64(p.period))
	if r > 0 {
		q++
	}
	return -int64(min(q, maxExact)), resetAfter
}

// ceil is the first whole microsecond that is not before TAT.
func (s state) ceil() int64 {
	if s.c > 0 {
		return s.a + 1
	}
	return s.a
}

func (bucket) retryAfter(s state, now int64, p params) int64 {
	s = p.later(s, p.costW, p.costF)
	after := s.a - now - p.roomW
	if s.c > p.roomF {
		after++
	}
	return after
}

func (bucket) arguments(args []any, p params) []any {
	return append(args, p.rate, p.costW, p.costF, p.roomW, p.roomF, p.period)
}

func (bucket) corrections(args []any, c *correction) []any {
	w, f := c.refill(max(c.delta, -c.delta))
	chargeW, chargeF := c.refill(c.units)
	return append(args, c.delta, c.placed.at, c.placed.frac, w, f, chargeW, chargeF)
}

// toCell: when a cell was written says nothing of its keys.
func (bucket) toCell(s state, until, _ int64, _ params) (state, int64) {
	return state{a: s.a, b: s.c}, until
}

// roll leaves a cell alone: its TAT may have been charged at another rate.
func (bucket) roll(cell state, _, _ int64) state { return cell }

func (bucket) fromCell(cell state, now int64, p params) state {
	return p.current(state{a: cell.a, c: cell.b}.writtenAt(now), now)
}

func (bucket) usedUntil(until, now int64, _ params) state { return state{a: until}.writtenAt(now) }
