package algorithms

import (
	"context"
	"slices"
	"time"

	"github.com/seed75154129/ratelimit/internal/step"

	"github.com/seed75154129/ratelimit/internal/transport"
)

// decideSharded decides where keys live on several servers: each check alone,
// all in one flush. What was charged to a request that another check denies is
// given back in a second one.
//
// A bucket does not get back what it refilled in between, and a queue gets a
// slot back only while it is the last. So a stream of denied requests would
// drain what it shares with others. A request of which this process knows that a
// check was denied a moment ago is looked at first, and charged only if it may
// pass: a denial is one flush as before, and costs the others nothing.
//
// A check whose server did not answer has Err. Its outcome is unknown, so
// nothing of it is ever given back. If only the answer about its ban is lost, it
// has Err too, and Charged. The error is for when no server answered.
func (r *Redis) decideSharded(ctx context.Context, t *transport.Transport, charge bool, checks []Check, ps []step.Params) (Decision, error) {
	if !charge {
		return r.askServers(ctx, t, false, checks, ps, r.takeCalls(false, checks, ps))
	}
	calls := r.takeCalls(true, checks, ps)
	known := func(c *transport.Call) bool { return r.recent.has(c.Key()) }
	if slices.ContainsFunc(calls, known) {
		d, err := r.askServers(ctx, t, false, checks, ps, r.takeCalls(false, checks, ps))
		if err != nil {
			return d, err
		}
		if deniedForCertain(d) {
			r.denied(ctx, t, d.Results)
			return d, nil
		}
		for _, c := range calls { // somebody has settled or reset, or it was another key
			if known(c) {
				r.recent.remove(c.Key())
			}
		}
	}
	d, err := r.askServers(ctx, t, true, checks, ps, calls)
	if err != nil {
		return d, err
	}
	for i := range d.Results {
		if res := &d.Results[i]; res.Err == nil && res.Denies() {
			r.recent.add(calls[i].Key(), res.RetryAfter)
		}
	}
	if deniedForCertain(d) {
		r.denied(ctx, t, d.Results)
	}
	return d, nil
}

// takeCalls are the calls that decide the checks, each alone; and behind them
// those that look at the bans of the checks that have one.
func (r *Redis) takeCalls(charge bool, checks []Check, ps []step.Params) []*transport.Call {
	calls := make([]*transport.Call, len(checks), 2*len(checks))
	for i := range checks {
		calls[i] = r.takeCall(charge, checks[i:i+1], ps[i:i+1])
		if checks[i].bans() {
			calls = append(calls, r.bansCall(lookAtBan, 0, checks[i:i+1], nil))
		}
	}
	return calls
}

// askServers sends calls that decide the checks. The results of those that were
// not answered have Err.
func (r *Redis) askServers(ctx context.Context, t *transport.Transport, charge bool, checks []Check, ps []step.Params, calls []*transport.Call) (Decision, error) {
	responses := t.SendAll(ctx, calls)
	bans := responses[len(checks):]
	t.Again(ctx, responses[:len(checks)], metBan, func(i int) *transport.Call {
		c := checks[i]
		c.spared = true // its denial counts in the second flush
		return r.takeBansCall(charge, true, []Check{c}, ps[i:i+1])
	})
	d := Decision{Allowed: true, Results: make([]Result, len(checks))}
	answered := false
	for i, resp := range responses[:len(checks)] {
		res := &d.Results[i]
		var one Decision
		if resp.Err == nil {
			one, resp.Err = r.answer(checks[i:i+1], ps[i:i+1], resp.Numbers, charge)
		}
		if resp.Err == nil {
			answered = true
			*res = one.Results[0]
		}
		if checks[i].bans() {
			if resp.Err == nil {
				var until int64
				if until, resp.Err = banned(&bans[0]); metBan(resp.Err) {
					resp.Err = r.foreign(&checks[i], &ps[i], resp.Err)
				}
				res.ban(until, res.At.UnixMicro()) // or as it was told already
			}
			bans = bans[1:]
		}
		if resp.Err != nil { // it may be charged, if only the answer about its ban is lost
			*res = Result{Check: checks[i], Source: SourceRedis, Charged: res.Charged, trace: step.Trace{Charge: res.trace.Charge}, settled: res.settled, Err: redisError(resp.Err)}
		}
		d.Allowed = d.Allowed && !res.Denies()
	}
	if !answered {
		return Decision{}, d.Results[0].Err
	}
	t.Seen()
	return d, nil
}

// deniedForCertain reports whether a check denied that was decided.
func deniedForCertain(d Decision) bool {
	return slices.ContainsFunc(d.Results, func(res Result) bool { return res.Err == nil && res.Denies() })
}

// denied gives back what a denied request was charged, and counts its denials by
// checks with a ban, in one flush. Charges that are certain to stand stay in the
// results, for the caller to settle. Of one whose return has got no answer,
// nothing more can be given back; if it still stands, that errs towards denying.
func (r *Redis) denied(ctx context.Context, t *transport.Transport, results []Result) {
	var charges []Charge
	if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) >= r.budget()/5 { // else it would be cut off half-way
		for i := range results {
			charges = append(charges, Charge{Result: results[i]})
		}
	}
	settled, corrections, _ := prepareSettle(charges, SourceRedis)
	var counted []int
	calls := each(corrections, r.settleCall)
	for i := range results {
		res := &results[i]
		if res.Check.bans() && res.Err == nil && res.Denies() && res.BannedFor == 0 && res.counts(res.Check.banRule()) {
			counted = append(counted, i)
			calls = append(calls, r.bansCall(countDenial, 0, []Check{res.Check}, nil))
		}
	}
	if len(calls) == 0 {
		return
	}
	responses := t.SendAll(ctx, calls)
	t.Again(ctx, responses[:len(corrections)], metBan, func(i int) *transport.Call { return r.settleKeptCall(corrections[i : i+1]) })
	for i, err := range settledEach(corrections, responses) {
		if err != nil && !transport.NotExecuted(err) {
			corrections[i].result.Charged = 0
		}
	}
	copy(results, settled)
	for i, resp := range responses[len(corrections):] {
		if until, err := banned(&resp); err == nil {
			res := &results[counted[i]]
			res.ban(until, res.At.UnixMicro())
		}
	}
}

// settleEach corrects each charge in a call of its own.
func (r *Redis) settleEach(ctx context.Context, t *transport.Transport, corrections []settlement) []error {
	responses := t.SendAll(ctx, each(corrections, r.settleCall))
	t.Again(ctx, responses, metBan, func(i int) *transport.Call { return r.settleKeptCall(corrections[i : i+1]) })
	return settledEach(corrections, responses)
}

// each makes a call for each correction.
func each(corrections []settlement, settleCall func([]settlement) *transport.Call) []*transport.Call {
	calls := make([]*transport.Call, len(corrections))
	for i := range corrections {
		calls[i] = settleCall(corrections[i : i+1])
	}
	return calls
}

// settledEach turns the responses to calls for each into what the corrections'
// results are now.
func settledEach(corrections []settlement, responses []transport.Response) []error {
	errs := make([]error, len(corrections))
	for i := range corrections {
		if errs[i] = responses[i].Err; errs[i] == nil {
			errs[i] = settled(corrections[i:i+1], responses[i].Numbers)
		}
		if errs[i] != nil {
			corrections[i].failed(errs[i])
		}
	}
	return errs
}
