package algorithms

import "context"

// decideSharded decides where keys live on several servers: each check alone,
// all in one flush. What was charged to a request that another check denies is
// given back in a second one.
//
// A check whose server did not answer has Err; its outcome is unknown, so
// nothing of it is ever given back. The error is for when no server answered.
func (r *Redis) decideSharded(ctx context.Context, t *transport, charge bool, checks []Check, ps []params) (Decision, error) {
	calls := make([]*call, len(checks))
	for i := range checks {
		calls[i] = r.takeCall(charge, checks[i:i+1], ps[i:i+1])
	}
	replies := t.sendAll(ctx, calls)

	d := Decision{Allowed: true, Results: make([]Result, len(checks))}
	denied, answered := false, false
	for i := range checks {
		res := &d.Results[i]
		var one Decision
		if replies[i].err == nil {
			one, replies[i].err = answers(checks[i:i+1], ps[i:i+1], replies[i].numbers, charge)
		}
		if err := replies[i].err; err != nil {
			*res = Result{Check: checks[i], Source: SourceRedis, Err: redisError(err)}
		} else {
			answered = true
			*res = one.Results[0]
			denied = denied || res.Denies()
		}
		d.Allowed = d.Allowed && !res.Denies()
	}
	if !answered {
		return Decision{}, redisError(replies[0].err)
	}
	t.seen.Store(true)
	if denied && charge {
		r.giveBack(ctx, t, d.Results)
	}
	return d, nil
}

// giveBack undoes the charges of a request that was denied. One that cannot be
// undone stays charged, which errs towards denying.
func (r *Redis) giveBack(ctx context.Context, t *transport, results []Result) {
	charges := make([]Charge, len(results))
	for i := range results {
		charges[i].Result = results[i]
	}
	settled, corrections, _ := prepareSettle(charges, SourceRedis)
	if len(corrections) > 0 {
		_ = r.settle(ctx, t, corrections) // as above
		copy(results, settled)
	}
}
