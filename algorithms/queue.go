package algorithms

// queue is the bucket read as nginx' limit_req reads it: TAT is the end of the
// last slot that was given away, and a request is served when its own begins.
//
// State and admission are the bucket's. Twin: lua/bucket.lua.
type queue struct{ bucket }

// correct gives a slot back only while it is the last: others were told when
// theirs begin. The slot is known by when it begins, in whole microseconds,
// which tells slots apart unless they are shorter than that.
func (q queue) correct(s state, now int64, p *params, ch charge) state {
	if ch.delta > 0 {
		return q.bucket.correct(s, now, p, ch)
	}
	w, f := p.refill(p.clip(ch.units))
	begin := p.earlier(s, w, f)
	if w < 1 || ceil(begin) != ch.at {
		return s
	}
	w, f = p.refill(p.clip(-ch.delta))
	return p.earlier(s, w, f).notBefore(now)
}

// delay is how long until the slot begins that a request gets, or got if it
// was charged.
func (p *params) delay(s state, now, charged int64) int64 {
	if charged > 0 {
		s = p.earlier(s, p.costW, p.costF)
	}
	return ceil(s) - now
}

// ceil is the first whole microsecond that is not before TAT.
func ceil(s state) int64 {
	if s.b > 0 {
		return s.a + 1
	}
	return s.a
}
