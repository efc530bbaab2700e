package step

// queue is a bucket that delays requests, like nginx's limit_req: TAT is the end of the
// last slot, and a request is served when its slot begins.
//
// State and admission are the bucket's.
type queue struct{ bucket }

// Take also returns when the slot begins: rounded up to a microsecond, and the fraction.
func (q queue) Take(s State, now int64, p Params) (State, Placed, bool) {
	charged, _, ok := q.bucket.Take(s, now, p)
	return charged, Placed{s.ceil(), s.C}, ok
}

// correct refunds a slot only while it is the last, because the requests in later slots
// know already when theirs begin.
func (q queue) correct(s State, now int64, c *Correction) State {
	if c.Delta > 0 {
		return q.bucket.correct(s, now, c)
	}
	w, f := c.refill(c.Units)
	if begin := c.earlier(s, w, f); begin.ceil() != c.Placed.At || begin.C != c.Placed.frac {
		return s
	}
	w, f = c.refill(-c.Delta)
	return s.corrected(c.earlier(s, w, f).notBefore(now), now)
}
