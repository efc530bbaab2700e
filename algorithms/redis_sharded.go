package algorithms

import (
	"context"
	"slices"
	"time"

	"github.com/seed75154129/ratelimit/internal/step"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// decideSharded decides where keys live on several servers: the checks of each key
// in a call of their own, all in one flush. What was charged to a request that
// another call denies is given back in a second one.
//
// A check whose server did not answer has Err. Its outcome is unknown, so nothing of it
// is ever given back. The error is for when no server answered.
func (r *Redis) decideSharded(ctx context.Context, t *transport.Transport, charge bool, checks []Check, ps []step.Params) (Decision, error) {
	d, err := r.askServers(ctx, t, charge, checks, ps)
	if err == nil && charge && slices.ContainsFunc(d.Results, func(res Result) bool { return res.Err == nil && res.Denies() }) {
		r.denied(ctx, t, d.Results)
	}
	return d, err
}

// A part is the checks of a request that have one key, which is the hash tag: one
// server has them, so that one call decides them, and charges all or none.
type part struct {
	at     []int // places in the request
	checks []Check
	ps     []step.Params
}

// partsOf groups checks by key.
func partsOf(checks []Check, ps []step.Params) []part {
	all := make([]part, 0, len(checks))
	for i := range checks {
		at := slices.IndexFunc(all, func(p part) bool { return p.checks[0].Key == checks[i].Key })
		if at < 0 {
			all = append(all, part{[]int{i}, checks[i : i+1 : i+1], ps[i : i+1 : i+1]})
			continue
		}
		p := &all[at]
		p.at, p.checks, p.ps = append(p.at, i), append(p.checks, checks[i]), append(p.ps, ps[i])
	}
	return all
}

// askServers decides the checks. The results of checks that were not answered have Err.
func (r *Redis) askServers(ctx context.Context, t *transport.Transport, charge bool, checks []Check, ps []step.Params) (Decision, error) {
	parts := partsOf(checks, ps)
	calls := make([]*transport.Call, len(parts))
	for i := range parts {
		calls[i] = r.takeCall(charge, parts[i].checks, parts[i].ps)
	}
	parts, responses := r.oneByOne(ctx, t, charge, parts, t.SendAll(ctx, calls))
	d := Decision{Allowed: true, Results: make([]Result, len(checks))}
	var failed error
	answered := false
	for i, resp := range responses {
		p := &parts[i]
		var decided Decision
		if resp.Err == nil {
			decided, resp.Err = answers(p.checks, p.ps, resp.Numbers, charge)
		}
		for j, at := range p.at {
			if err := redisError(r.foreign(&p.checks[j], &p.ps[j], resp.Err)); err != nil {
				d.Results[at], failed = Result{Check: checks[at], Source: SourceRedis, Err: err}, err
			} else {
				d.Results[at], answered = decided.Results[j], true
			}
			d.Allowed = d.Allowed && !d.Results[at].Denies()
		}
	}
	if !answered {
		return Decision{}, failed
	}
	t.Seen()
	return d, nil
}

// oneByOne sends the checks of those parts one by one that were certainly not decided: their
// keys are on two servers, as while a slot moves, or one of them has a foreign value.
func (r *Redis) oneByOne(ctx context.Context, t *transport.Transport, charge bool, parts []part, responses []transport.Response) ([]part, []transport.Response) {
	var decided, again []part
	var got []transport.Response
	var calls []*transport.Call
	for i, p := range parts {
		if err := responses[i].Err; len(p.checks) == 1 || !transport.Moved(err) && !isForeign(err) {
			decided, got = append(decided, p), append(got, responses[i])
			continue
		}
		for j := range p.checks {
			one := part{p.at[j : j+1], p.checks[j : j+1], p.ps[j : j+1]}
			again, calls = append(again, one), append(calls, r.takeCall(charge, one.checks, one.ps))
		}
	}
	if again == nil {
		return parts, responses // the usual case
	}
	return append(decided, again...), append(got, t.SendAll(ctx, calls)...)
}

// denied gives back what a denied request was charged. Charges that are certain to stand stay
// in the results, for the caller to settle. Of one whose return has got no answer, nothing
// more can be given back; if it still stands, that errs towards denying.
func (r *Redis) denied(ctx context.Context, t *transport.Transport, results []Result) {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < r.budget()/5 {
		return // another flush would be cut off half-way
	}
	charges := make([]Charge, len(results))
	for i := range results {
		charges[i].Result = results[i]
	}
	settled, corrections, _ := prepareSettle(charges, SourceRedis)
	if len(corrections) == 0 {
		return
	}
	r.settleEach(ctx, t, corrections)
	for i := range settled {
		settled[i].Err = results[i].Err
	}
	copy(results, settled)
}

// settleEach corrects each charge in a call of its own.
func (r *Redis) settleEach(ctx context.Context, t *transport.Transport, corrections []settlement) []error {
	calls, errs := make([]*transport.Call, len(corrections)), make([]error, len(corrections))
	for i := range corrections {
		calls[i] = r.settleCall(corrections[i : i+1])
	}
	for i, resp := range t.SendAll(ctx, calls) {
		if errs[i] = resp.Err; errs[i] == nil {
			errs[i] = settled(corrections[i:i+1], resp.Numbers)
		}
		if errs[i] != nil {
			corrections[i].failed(errs[i])
		}
	}
	return errs
}
