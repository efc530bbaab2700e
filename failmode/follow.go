package failmode

import "github.com/seed75154129/ratelimit/algorithms"

// shareOf is how a result of Next is counted here, so that local counting is
// warm: at this process' share, if it would be counted locally at all.
func (f *Fallback) shareOf(r *algorithms.Result) (algorithms.Check, bool) {
	switch r.Source {
	case algorithms.SourceFallback, algorithms.SourceFailOpen, algorithms.SourceFailClosed:
		return algorithms.Check{}, false
	}
	if r.Check.Fail == Open || r.Check.Fail == Closed {
		return algorithms.Check{}, false
	}
	return f.shareOfCheck(r.Check), true
}

// shareOfCheck is what this process may admit of a check's limit.
func (f *Fallback) shareOfCheck(c algorithms.Check) algorithms.Check {
	instances, quota := int64(f.Processes()), c.Limit.Quota()
	share := min(max(quota/instances, c.Cost, 1), quota)
	if c.Limit.Burst > 0 {
		c.Limit.Burst = share
		c.Limit.Rate = max(c.Limit.Rate/instances, 1)
	} else {
		c.Limit.Rate = share
	}
	return c
}
