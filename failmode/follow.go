package failmode

import "github.com/seed75154129/ratelimit/algorithms"

// follow keeps local counting warm: it counts what Next decided.
func (f *Fallback) follow(results []algorithms.Result) {
	var room [4]algorithms.Result
	here := room[:0]
	for i := range results {
		if r := &results[i]; followed(r) {
			here = append(here, *r)
			here[len(here)-1].Check = f.share(r.Check)
		}
	}
	f.local.Follow(here...)
}

// followed reports whether Next decided a check that would be counted locally.
func followed(r *algorithms.Result) bool {
	switch r.Source {
	case algorithms.SourceFallback, algorithms.SourceFailOpen, algorithms.SourceFailClosed:
		return false
	}
	return r.Err == nil && r.Check.Fail != Open && r.Check.Fail != Closed
}

// here is what following charged for a result, to be given back. Windows begin
// at the same time by every clock; a charge to a log or a queue is found only if
// the clocks agree to the microsecond, and stays otherwise.
func (f *Fallback) here(r algorithms.Result) algorithms.Result {
	r.Source, r.Check = algorithms.SourceMemory, f.share(r.Check)
	return r
}

// share is what this process may admit of a check's limit.
func (f *Fallback) share(c algorithms.Check) algorithms.Check {
	instances, quota := int64(f.Processes()), c.Limit.Quota()
	share := min(max(quota/instances, c.Cost, 1), quota)
	if c.Limit.Burst > 0 || quota != c.Limit.Rate {
		c.Limit.Burst = share
		c.Limit.Rate = max(c.Limit.Rate/instances, 1)
	} else {
		c.Limit.Rate = share
	}
	return c
}
