package algorithms

import "math/bits"

// follow counts here what another store decided, so that this one is warm when
// it has to take over: each result's key is charged what was charged there, and
// is left no more than its Remaining there. It never goes into debt. The results
// remember what was charged, for unfollow. share says by which check a result
// is counted here, such as one with a part of the limit; false passes it over.
//
// Results with an Err and those whose share is invalid are passed over. By a
// clock in another window, what is left there says nothing of here, and only the
// charge is followed.
//
// follow denies nothing and locks one key at a time; of a request with several
// checks, another may see only some as counted.
func (m *Memory) follow(results []Result, share func(*Result) (Check, bool)) {
	m.ready()
	now := m.now()
	for i := range results {
		r := &results[i]
		if r.Err != nil {
			continue
		}
		if c, ok := share(r); ok && c.Limit.ok() && c.Cost >= 0 {
			m.followOne(now, r, &c)
		}
	}
}

func (m *Memory) followOne(now int64, r *Result, c *Check) {
	p := paramsOf(c)
	pl := m.place(c, &p)
	pl.shard.mu.Lock()
	defer pl.shard.mu.Unlock()
	current, _ := pl.load(now, &p)
	left := max(p.remaining(current, now, &p), 0)
	r.followed = min(max(r.Charged, 0), left)
	over := left - r.followed - max(r.Remaining, 0) // used there, but not through here
	if !p.bucket && r.At.UnixMicro()/p.period != now/p.period {
		over = 0
	}
	if over > 0 && p.code == codeSlidingWindow && r.Allowed {
		current, over = p.usedBefore(current, now, over)
		pl.store(current, now, &p, m.most)
	}
	units := r.followed + max(over, 0)
	if units == 0 {
		return
	}
	if p.cost = units; p.bucket {
		p.costW, p.costF = p.refill(units)
	}
	current, _ = p.take(current, now, &p)
	pl.store(current, now, &p, m.most)
}

// usedBefore counts units as used in the window before this one, as far as they
// can have been: others may have used them then, and so they are free the sooner.
// It returns what has to be counted in this one.
func (p *params) usedBefore(s state, now, units int64) (state, int64) {
	left := s.a + p.period - now
	if left <= 0 || left > p.period {
		return s, units // the window has not begun: a clock stepped back
	}
	want := p.remaining(s, now, p) - units
	last := p.rate
	if hi, lo := bits.Mul64(uint64(units), uint64(p.period)); hi < uint64(left) {
		weighed, rest := bits.Div64(hi, lo, uint64(left))
		if rest > 0 {
			weighed++
		}
		last = int64(min(uint64(s.c)+weighed, uint64(p.rate)))
	}
	s.c = max(s.c, last)
	return s, max(p.remaining(s, now, p)-want, 0)
}

// unfollow makes what follow charged for the charges' results cost what they
// say, as [Memory.Settle] does where they were charged, and notes it in them. A charge to a sliding_log or
// a leaky_bucket is found only if the clocks agree to the microsecond, and stays
// otherwise.
func (m *Memory) unfollow(charges []Charge, share func(*Result) (Check, bool)) {
	for i, ch := range charges {
		r := ch.Result
		c, ok := share(&r)
		if !ok || r.followed == 0 {
			continue
		}
		ch.Cost = max(r.followed+ch.Cost-r.Charged, 0)
		r.Check, r.Source, r.Charged = c, SourceMemory, r.followed
		ch.Result = r
		_, corrections, _ := prepareSettle([]Charge{ch}, SourceMemory) // follow took the share for valid
		for j := range corrections {
			m.settle(&corrections[j])
		}
		charges[i].Result.followed = ch.Cost
	}
}
