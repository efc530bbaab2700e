package algorithms

import (
	"context"
	"time"
)

// decideSharded decides where keys live on several servers: each check alone,
// all in one flush. What was charged to a request that another check denies is
// given back in a second one.
//
// A check whose server did not answer has Err; its outcome is unknown, so
// nothing of it is ever given back. The error is for when no server answered.
func (r *Redis) decideSharded(ctx context.Context, charge bool, checks []Check, ps []params) (Decision, error) {
	calls := make([]*call, len(checks))
	for i := range checks {
		calls[i] = r.takeCall(charge, checks[i:i+1], ps[i:i+1])
	}
	replies, errs := r.sender.sendAll(ctx, calls)

	d := Decision{Allowed: true, Results: make([]Result, len(checks))}
	denied, answered := false, false
	for i := range checks {
		res := &d.Results[i]
		var one Decision
		if errs[i] == nil {
			one, errs[i] = answers(checks[i:i+1], ps[i:i+1], replies[i], charge)
		}
		if errs[i] != nil {
			*res = Result{Check: checks[i], Source: SourceRedis, Err: errs[i]}
		} else {
			answered = true
			*res = one.Results[0]
			denied = denied || res.denies()
		}
		d.Allowed = d.Allowed && !res.denies()
	}
	if !answered {
		return Decision{}, errs[0]
	}
	r.nodes.known.Store(true)
	if denied && charge {
		r.giveBack(ctx, d.Results)
	}
	return d, nil
}

// giveBack undoes the charges of a request that was denied. One that cannot be
// undone stays charged, which errs towards denying.
func (r *Redis) giveBack(ctx context.Context, results []Result) {
	corrections, err := prepareSettle(0, results, SourceRedis)
	if err != nil || len(corrections) == 0 {
		return
	}
	replies, _ := r.settle(ctx, corrections)
	for i := range corrections {
		c := &corrections[i]
		if len(replies) <= i || checkReply(replies[i], 3, 1) != nil {
			continue
		}
		now := replies[i][0]
		res := &results[c.index]
		res.Charged, res.At = 0, time.UnixMicro(now)
		c.answer(res, c.stateOf(replies[i][1:], now), now)
	}
}
