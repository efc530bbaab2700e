package failmode

import (
	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/memory"
	"github.com/seed75154129/ratelimit/internal/step"
)

func stepLimit(l algorithms.Limit) step.Limit {
	return step.Limit{Rate: l.Rate, Period: l.Period, Burst: l.Burst, Calendar: l.Calendar, Algorithm: string(l.Algorithm)}
}

// valid reports whether a limiter could decide the checks of a call.
func valid(checks []algorithms.Check) bool {
	for i := range checks {
		a := &checks[i]
		if a.Validate() != nil {
			return false
		}
		for j := range checks[:i] {
			b := &checks[j]
			if a.Rule == b.Rule && a.Key == b.Key && a.Limit.Period == b.Limit.Period && a.Limit.Calendar == b.Limit.Calendar && stepLimit(a.Limit).Row() == stepLimit(b.Limit).Row() {
				return false // two checks of one call may not share a count
			}
		}
	}
	return true
}

// impatient reports whether a check was denied only because its slot would have begun
// after MaxDelay: the queue had room.
func impatient(r *algorithms.Result) bool {
	row := stepLimit(r.Check.Limit).Row()
	return !r.HasRoom && r.Err == nil && r.Check.MaxDelay > 0 && row != nil && row.Queue && r.Remaining >= max(r.Check.Cost, 1)
}

// followIn counts in a memory what another store decided, by the checks that share
// returns.
func followIn(m *algorithms.Memory, results []algorithms.Result, share func(*algorithms.Result) (algorithms.Check, bool)) {
	store := lent.Memory(m)
	now := store.Now()
	for i := range results {
		r := &results[i]
		if r.Err != nil {
			continue
		}
		c, ok := share(r)
		if !ok {
			continue
		}
		var n memory.Count
		if !lent.Count(&c, &n) {
			continue
		}
		followed := store.Follow(now, &n, &memory.Followed{
			Allowed: r.HasRoom, Banned: r.BannedFor > 0, Charged: r.Charged, Remaining: r.Remaining,
			At: r.At.UnixMicro(), BannedFor: r.BannedFor.Microseconds(),
		})
		if r.BannedFor <= 0 {
			lent.Trace(r).Followed = followed
		}
	}
}

// unfollowIn makes what followIn charged for a charge's result cost what the charge
// says, and notes it in the result as settled by the store. The charge's result says
// what it cost before. A charge to a sliding_log or a leaky_bucket is found only if the
// clocks agree to the microsecond, and stays otherwise.
func unfollowIn(m *algorithms.Memory, ch algorithms.Charge, settled *algorithms.Result, share func(*algorithms.Result) (algorithms.Check, bool)) {
	r := &ch.Result
	trace := lent.Trace(r)
	c, ok := share(r)
	if !ok || trace.Followed == 0 {
		return
	}
	units := max(trace.Followed+ch.Cost-r.Charged, 0)
	var n memory.Count
	if units != trace.Followed && lent.Count(&c, &n) {
		lent.Memory(m).Settle(c.Rule, c.Key, &step.Correction{
			Params: n.Params, Placed: trace.Charge, Units: trace.Followed, Delta: units - trace.Followed,
		})
	}
	lent.Trace(settled).Followed = units
}
