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
// is ever given back. If only the answer about its ban is lost, it has Err too, and
// Charged. The error is for when no server answered.
func (r *Redis) decideSharded(ctx context.Context, t *transport.Transport, charge bool, checks []Check, ps []step.Params) (Decision, error) {
	d, err := r.askServers(ctx, t, charge, checks, ps)
	if err == nil && charge && deniedForCertain(d) {
		r.denied(ctx, t, d.Results)
	}
	return d, err
}

// timeToSettle reports whether another flush is in time: otherwise it would be cut off
// half-way.
func (r *Redis) timeToSettle(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return !ok || time.Until(deadline) >= r.budget()/5
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

// askServers decides the checks; behind the calls that do are those that look at
// bans. The results of checks that were not answered have Err.
func (r *Redis) askServers(ctx context.Context, t *transport.Transport, charge bool, checks []Check, ps []step.Params) (Decision, error) {
	parts := partsOf(checks, ps)
	calls := make([]*transport.Call, 0, 2*len(checks))
	for i := range parts {
		calls = append(calls, r.takeCall(charge, parts[i].checks, parts[i].ps))
	}
	look := lookAtBan
	if charge {
		look = healBan
	}
	for i := range checks {
		if checks[i].bans() {
			calls = append(calls, r.bansCall(look, 0, checks[i:i+1], nil))
		}
	}
	responses := t.SendAll(ctx, calls)
	bans := responses[len(parts):]
	parts, responses = r.oneByOne(ctx, t, charge, parts, responses[:len(parts)])
	t.Again(ctx, responses, func(i int) *transport.Call {
		if !metBan(responses[i].Err) {
			return nil
		}
		return r.sparedCall(charge, &parts[i])
	})
	d := Decision{Allowed: true, Results: make([]Result, len(checks))}
	errs := make([]error, len(checks))
	answered := false
	for i, resp := range responses {
		p := &parts[i]
		var decided Decision
		if resp.Err == nil {
			decided, resp.Err = r.answer(p.checks, p.ps, resp.Numbers, charge)
		}
		for j, at := range p.at {
			if errs[at] = redisError(resp.Err); resp.Err == nil {
				answered = true
				d.Results[at], errs[at] = decided.Results[j], decided.Results[j].Err
			}
		}
	}
	for i := range checks {
		res := &d.Results[i]
		if checks[i].bans() {
			if errs[i] == nil {
				until, err := banned(&bans[0])
				if metBan(err) {
					err = r.foreign(&checks[i], &ps[i], err)
				}
				errs[i] = redisError(err)
				res.ban(until, res.At.UnixMicro()) // or as it was told already
			}
			bans = bans[1:]
		}
		if errs[i] != nil { // it may be charged, if only the answer about its ban is lost
			*res = Result{Check: checks[i], Source: SourceRedis, Charged: res.Charged, trace: step.Trace{Charge: res.trace.Charge}, Err: errs[i]}
		}
		d.Allowed = d.Allowed && !res.Denies()
	}
	if !answered {
		return Decision{}, errs[0]
	}
	t.Seen()
	return d, nil
}

// sparedCall decides the checks of a part, and counts no denial: the second flush does.
func (r *Redis) sparedCall(charge bool, p *part) *transport.Call {
	spared := slices.Clone(p.checks)
	for i := range spared {
		spared[i].spared = true
	}
	return r.takeBansCall(charge, true, spared, p.ps)
}

// oneByOne sends the checks of those parts one by one that were certainly not decided
// because their keys are on two servers, as while a slot moves.
func (r *Redis) oneByOne(ctx context.Context, t *transport.Transport, charge bool, parts []part, responses []transport.Response) ([]part, []transport.Response) {
	var decided, again []part
	var got []transport.Response
	var calls []*transport.Call
	for i, p := range parts {
		if len(p.checks) == 1 || !transport.Moved(responses[i].Err) {
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
	if r.timeToSettle(ctx) {
		for i := range results {
			charges = append(charges, Charge{Result: results[i]})
		}
	}
	settled, corrections, _ := prepareSettle(charges, SourceRedis)
	var counted []int
	calls := each(corrections, r.settleCall)
	for i := range results {
		res := &results[i]
		counts := res.Check.bans() && res.Err == nil && res.Denies() && res.BannedFor == 0 && res.counts(res.Check.banRule())
		if counts && !slices.ContainsFunc(counted, func(j int) bool { return sameBan(&results[j].Check, &res.Check) }) {
			counted = append(counted, i)
			calls = append(calls, r.bansCall(countDenial, 0, []Check{res.Check}, nil))
		}
	}
	if len(calls) == 0 {
		return
	}
	responses := t.SendAll(ctx, calls)
	t.Again(ctx, responses[:len(corrections)], r.orKept(corrections, responses))
	settledEach(corrections, responses)
	for i := range settled {
		settled[i].Err = results[i].Err
	}
	copy(results, settled)
	for i, resp := range responses[len(corrections):] {
		if until, err := banned(&resp); err == nil {
			for j := range results { // all that the request was denied by
				if res := &results[j]; res.Denies() && res.Check.bans() && sameBan(&res.Check, &results[counted[i]].Check) {
					res.ban(until, res.At.UnixMicro())
					until = max(until, -until) // it began once
				}
			}
		}
	}
}

// settleEach corrects each charge in a call of its own.
func (r *Redis) settleEach(ctx context.Context, t *transport.Transport, corrections []settlement) []error {
	responses := t.SendAll(ctx, each(corrections, r.settleCall))
	t.Again(ctx, responses, r.orKept(corrections, responses))
	return settledEach(corrections, responses)
}

// orKept returns what to send for a correction whose key has met a ban by hand.
func (r *Redis) orKept(corrections []settlement, responses []transport.Response) func(i int) *transport.Call {
	return func(i int) *transport.Call {
		if !metBan(responses[i].Err) {
			return nil
		}
		return r.settleKeptCall(corrections[i : i+1])
	}
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
