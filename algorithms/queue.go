package algorithms

import "time"

// queue is the bucket read as nginx' limit_req reads it: TAT is the end of the
// last slot that was given away, and a request is served when its own begins.
//
// State and admission are the bucket's. Twin: lua/bucket.lua.
type queue struct{ bucket }

// charged is when the slot begins, rounded up.
func (queue) charged(s state, _ int64, p *params) placed {
	begin := p.earlier(s, p.costW, p.costF)
	return placed{ceil(begin), begin.b}
}

// correct gives a slot back only while it is the last: others were told when
// theirs begin.
func (q queue) correct(s state, now int64, p *params, ch *correction) state {
	if ch.delta > 0 {
		return q.bucket.correct(s, now, p, ch)
	}
	w, f := p.refill(p.clip(ch.units))
	if begin := p.earlier(s, w, f); ceil(begin) != ch.at || begin.b != ch.frac {
		return s
	}
	w, f = p.refill(p.clip(-ch.delta))
	return p.earlier(s, w, f).notBefore(now)
}

// delay is how long until the slot begins that a request gets, or got if it
// was charged.
func (p *params) delay(s state, now, charged int64) time.Duration {
	if charged > 0 {
		s = p.earlier(s, p.costW, p.costF)
	}
	return micros(ceil(s) - now)
}

// ceil is the first whole microsecond that is not before TAT.
func ceil(s state) int64 {
	if s.b > 0 {
		return s.a + 1
	}
	return s.a
}
