package algorithms

import "time"

// A Result is what became of one [Check].
type Result struct {
	Check      Check         // as it was decided: in a fallback, with its share of the limit
	Source     Source        // who decided
	Allowed    bool          // the check had room; others may still have denied the request
	Charged    int64         // units taken; 0 where the request was denied
	Remaining  int64         // units left; negative is a debt
	RetryAfter time.Duration // until Cost units are free; 0 when Allowed; Never if they never will be
	ResetAfter time.Duration // until all units are free
	Delay      time.Duration // leaky_bucket: wait this long before serving
	At         time.Time     // when it was decided, on the deciding clock
	Err        error         // why this check could not be decided; nil where it was

	charge   placed // where Charged is to be found in the state
	followed int64  // units that a memory that follows has charged for it
}

// Denies reports whether the result denies its request: enforced, and without
// room.
func (r *Result) Denies() bool { return !r.Allowed && !r.Check.Shadow }

// A Decision is what became of a request.
type Decision struct {
	Allowed bool     // no enforced check denied it
	Results []Result // of the checks answered, in their order
}

// Result returns the result of a rule's check, the last of several.
func (d Decision) Result(rule string) (Result, bool) {
	for i := len(d.Results) - 1; i >= 0; i-- {
		if d.Results[i].Check.Rule == rule {
			return d.Results[i], true
		}
	}
	return Result{}, false
}

// RetryAfter is the longest RetryAfter of the checks that denied the request,
// 0 if none did.
func (d Decision) RetryAfter() time.Duration {
	var longest time.Duration
	for i := range d.Results {
		if r := &d.Results[i]; r.Denies() {
			longest = max(longest, r.RetryAfter)
		}
	}
	return longest
}

// Delay is how long to wait before serving an admitted request: the longest
// Delay of its enforced checks, 0 if it was denied.
func (d Decision) Delay() time.Duration {
	var longest time.Duration
	for i := range d.Results {
		if r := &d.Results[i]; d.Allowed && !r.Check.Shadow {
			longest = max(longest, r.Delay)
		}
	}
	return longest
}

// Tightest returns the enforced result with the least Remaining/Cost and, among
// equals, the longest ResetAfter. Results with an Err do not take part.
func (d Decision) Tightest() (Result, bool) {
	tightest, fewest := -1, int64(0)
	for i := range d.Results {
		r := &d.Results[i]
		if r.Check.Shadow || r.Err != nil {
			continue
		}
		cost := max(r.Check.Cost, 1)
		left := r.Remaining / cost
		if r.Remaining%cost < 0 {
			left-- // in debt
		}
		if tightest < 0 || left < fewest || left == fewest && r.ResetAfter > d.Results[tightest].ResetAfter {
			tightest, fewest = i, left
		}
	}
	if tightest < 0 {
		return Result{}, false
	}
	return d.Results[tightest], true
}
