package algorithms

import "math/bits"

// bucket is the step that the token bucket and its other forms share: the
// generic cell rate algorithm of ITU-T I.371. It remembers one time, TAT, at
// which the bucket will be full again, and admits while that is at most the
// time of a whole bucket ahead. TAT counts in fractions over the rate, so no
// rate loses anything to rounding.
//
// State: a + b/rate is TAT in µs. Twin: lua/bucket.lua.
type bucket struct{}

func (bucket) at(s state, now int64, p *params) (state, bool) {
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

func (bucket) take(s state, now int64, p *params) (state, bool) {
	s = p.later(s, p.costW, p.costF)
	return s, s.a < now+p.fullW || s.a == now+p.fullW && s.b <= p.fullF
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

func (bucket) charged(_ state, now int64, _ *params) placed { return placed{at: now} }

// correct charges more up to one period beyond a whole bucket. It gives back at
// most what the charge's time has not refilled since: a bucket that is given
// back more would admit what it never held.
func (bucket) correct(s state, now int64, p *params, ch *correction) state {
	w, f := p.refill(p.clip(max(ch.delta, -ch.delta)))
	if ch.delta > 0 {
		s = p.later(s, w, f)
		if most := now + p.fullW + p.period; s.a >= most {
			s = state{a: most}
		}
		return s
	}
	chargeW, chargeF := p.refill(p.clip(ch.units))
	if chargeW -= max(now-ch.at, 0); chargeW < w || chargeW == w && chargeF < f {
		w, f = chargeW, chargeF
	}
	if w < 0 {
		return s
	}
	return p.earlier(s, w, f).notBefore(now)
}

// notBefore makes a state current again whose TAT was moved back.
func (s state) notBefore(now int64) state {
	if s.a < now {
		return state{a: now}
	}
	return s
}

// clip bounds units to what a bucket and a period can hold together, so that
// their time stays inside the exact range.
func (p *params) clip(units int64) int64 {
	hi, lo := bits.Mul64(uint64(p.fullW+1), uint64(p.rate))
	bucket, _ := bits.Div64(hi, lo, uint64(p.period))
	return min(units, int64(bucket)+p.rate+1)
}

func (b bucket) retryAfter(s state, now int64, p *params) int64 {
	s, _ = b.take(s, now, p)
	after := s.a - now - p.fullW
	if s.b > p.fullF {
		after++
	}
	return after
}

// remaining is ⌊(now + full − TAT)·rate/period⌋.
func (bucket) remaining(s state, now int64, p *params) int64 {
	w, f := now+p.fullW-s.a, p.fullF-s.b
	if f < 0 {
		w, f = w-1, f+p.rate
	}
	if w < 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(w), uint64(p.rate))
	lo, carry := bits.Add64(lo, uint64(f), 0)
	q, _ := bits.Div64(hi+carry, lo, uint64(p.period))
	return int64(q)
}

func (bucket) resetAfter(s state, now int64, _ *params) int64 { return ceil(s) - now }
