package algorithms

// Follow counts here what another store decided, so that this one is warm when
// it has to take over: each result's key is charged what was charged there, and
// is left no more than its Remaining there. It never goes into debt.
//
// A result's Check may be given another Limit than it was decided by, such as
// one process' share. Results with an Err and those of invalid checks are passed
// over.
//
// To take back what Follow counted, settle the results with [SourceMemory] as
// their Source and At as it was. A charge to a sliding_log or a leaky_bucket is
// found by its exact time, so it stays if the clocks differ; one to a window, if
// they are in different windows.
//
// Follow denies nothing and locks one key at a time; of a request with several
// checks, another may see only some as counted.
func (m *Memory) Follow(results ...Result) {
	m.ready()
	for i := range results {
		if r := &results[i]; r.Err == nil && r.Check.Limit.ok() && r.Check.Cost >= 0 {
			m.follow(r)
		}
	}
}

func (m *Memory) follow(r *Result) {
	p := paramsOf(&r.Check)
	pl := m.place(&r.Check, &p)
	pl.shard.mu.Lock()
	defer pl.shard.mu.Unlock()
	now := m.now()
	current, _ := pl.load(now, &p)
	left := max(p.remaining(current, now, &p), 0)
	units := min(max(r.Charged, left-max(r.Remaining, 0)), left)
	if units <= 0 {
		return
	}
	if p.cost = units; p.bucket {
		p.costW, p.costF = p.refill(units)
	}
	current, _ = p.take(current, now, &p)
	pl.store(current, now, &p, m.most)
}
