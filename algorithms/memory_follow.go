package algorithms

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
// A ban is followed too, if there is room for it, and ends here as soon as a check
// that it would bind is not banned there. As there, a rule's own binds the checks
// with a Ban.
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
		if c, ok := share(r); ok {
			if p, valid := c.numbers(); valid {
				m.followOne(now, r, &c, p)
			}
		}
	}
}

func (m *Memory) followOne(now int64, r *Result, c *Check, p params) {
	pl := m.place(c, &p)
	pl.shard.mu.Lock()
	defer pl.shard.mu.Unlock()
	if pl.followBan(now, r, m.most); r.Banned {
		return // what is left says nothing about the count
	}
	current, _ := pl.load(now, &p)
	left, _ := p.step.left(current, now, p)
	left = max(left, 0)
	r.followed = min(max(r.Charged, 0), left)
	over := left - r.followed - max(r.Remaining, 0) // used there, but not through here
	if p.aligned && r.At.UnixMicro()/p.period != now/p.period {
		over = 0
	}
	if over > 0 && r.Allowed {
		current, over = p.step.usedBefore(current, now, over, p)
		pl.store(current, p.until(current, now), now, &p, m.most)
	}
	units := r.followed + max(over, 0)
	if units == 0 {
		return
	}
	p.setCost(units)
	current, _, _ = p.take(current, now)
	pl.store(current, p.until(current, now), now, &p, m.most)
}

// followed is what a step says about units that other processes have used.
type followed interface {
	// usedBefore counts units in a current state as used before now, as far as
	// it can tell, and returns how many are to be counted as used now.
	usedBefore(s state, now, units int64, p params) (state, int64)
}

// asNow is for steps that count all of them as used now.
type asNow struct{}

func (asNow) usedBefore(s state, _, units int64, _ params) (state, int64) { return s, units }

// unfollow makes what follow charged for a charge's result cost what the charge says,
// as [Memory.Settle] does where it was charged, and notes it in the result as settled
// there. The charge's result says what it cost before. A charge to a sliding_log or a
// leaky_bucket is found only if the clocks agree to the microsecond, and stays
// otherwise.
func (m *Memory) unfollow(ch Charge, settled *Result, share func(*Result) (Check, bool)) {
	r := &ch.Result
	c, ok := share(r)
	if !ok || r.followed == 0 {
		return
	}
	ch.Cost = r.followedAt(ch.Cost)
	r.Check, r.Source, r.Charged, r.settled = c, SourceMemory, r.followed, nil
	_, corrections, _ := prepareSettle([]Charge{ch}, SourceMemory) // follow took the share for valid
	for i := range corrections {
		m.settle(&corrections[i])
	}
	settled.followed = ch.Cost
}
