package algorithms

// queue is the bucket read as nginx' limit_req reads it: TAT is the end of the
// last slot that was given away, and a request is served when its own begins.
//
// State and admission are the bucket's. Twin: lua/queue.lua.
type queue struct{ bucket }

// take says when the slot begins, rounded up, and by which fraction.
func (q queue) take(s state, now int64, p params) (state, placed, bool) {
	charged, _, ok := q.bucket.take(s, now, p)
	return charged, placed{s.ceil(), s.c}, ok
}

// correct gives a slot back only while it is the last: others were told when
// theirs begin.
func (q queue) correct(s state, now int64, c *correction) state {
	if c.delta > 0 {
		return q.bucket.correct(s, now, c)
	}
	w, f := c.refill(c.units)
	if begin := c.earlier(s, w, f); begin.ceil() != c.placed.at || begin.c != c.placed.frac {
		return s
	}
	w, f = c.refill(-c.delta)
	return s.corrected(c.earlier(s, w, f).notBefore(now), now)
}

// impatient reports whether a check was denied only because its slot would have
// begun after MaxDelay: the queue had room. That is no reason to ban anybody, nor
// to deny others.
func (r *Result) impatient() bool {
	row := r.Check.Limit.row()
	return !r.Allowed && r.Err == nil && r.Check.MaxDelay > 0 && row != nil && row.queue && r.Remaining >= max(r.Check.Cost, 1)
}
