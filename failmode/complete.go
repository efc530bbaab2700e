package failmode

import (
	"context"
	"errors"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// retryClosed is the RetryAfter of a check that nobody could count: when Redis
// is back is not known, so clients are asked to try again soon.
const retryClosed = time.Second

// complete decides what Next left undecided.
func (f *Fallback) complete(ctx context.Context, charge bool, checks []algorithms.Check, d algorithms.Decision, err error) (algorithms.Decision, error) {
	if errors.Is(err, algorithms.ErrInvalidCheck) {
		return d, err // the caller's mistake: no store could decide it
	}
	results, undecided := align(checks, d, err)
	if len(undecided) == 0 {
		f.outage.over()
		return d, nil
	}
	f.outage.begun(results[undecided[0]].Err)

	var localChecks []algorithms.Check
	var localAt []int
	denied, byNext := false, false
	for i := range results {
		r := &results[i]
		if r.Err == nil {
			byNext = byNext || !r.Allowed && !r.Check.Shadow
		} else {
			switch r.Check.Fail {
			case Open:
				r.Source, r.Allowed = algorithms.SourceFailOpen, true
			case Closed:
				r.Source, r.RetryAfter = algorithms.SourceFailClosed, retryClosed
			default:
				share := f.shareOfCheck(r.Check)
				if share.Limit.Validate() != nil {
					share.Limit = r.Check.Limit // a rate that is too low for its burst and period
				}
				localChecks = append(localChecks, share)
				localAt = append(localAt, i)
				continue
			}
		}
		denied = denied || !r.Allowed && !r.Check.Shadow
	}
	local, err := f.takeLocal(ctx, charge && !denied, localChecks)
	if err != nil {
		return algorithms.Decision{}, err
	}
	for i, at := range localAt {
		results[at] = local.Results[i]
		results[at].Source = algorithms.SourceFallback
	}
	d = algorithms.Decision{Allowed: !denied && local.Allowed, Results: results}
	if !d.Allowed && !byNext { // Next has given back what itself denied
		f.giveBack(ctx, results)
	}
	return d, nil
}

// decideRefused decides where the breaker refuses some checks. Those come first:
// if they deny the request, nothing is sent.
func (f *Fallback) decideRefused(ctx context.Context, charge bool, next ask, checks []algorithms.Check) (algorithms.Decision, error) {
	var refused, rest []algorithms.Check
	for _, c := range checks {
		if f.gate.Refuses(c) {
			refused = append(refused, c)
		} else {
			rest = append(rest, c)
		}
	}
	here := algorithms.Decision{Allowed: true}
	if len(refused) > 0 {
		var err error
		here, err = f.complete(ctx, charge, refused, here, ErrOpen)
		if err != nil || !here.Allowed || len(rest) == 0 {
			return here, err
		}
	}
	there, err := f.decide(ctx, charge, next, rest)
	if err != nil || !there.Allowed {
		f.giveBackLocal(ctx, here.Results)
	}
	if err != nil {
		return algorithms.Decision{}, err
	}
	d := algorithms.Decision{Allowed: there.Allowed}
	for _, c := range checks { // in their order; a denial may not have asked for all
		if len(here.Results) > 0 && of(here.Results[0], c) {
			d.Results, here.Results = append(d.Results, here.Results[0]), here.Results[1:]
		} else if len(there.Results) > 0 && of(there.Results[0], c) {
			d.Results, there.Results = append(d.Results, there.Results[0]), there.Results[1:]
		}
	}
	return d, nil
}

// of reports whether a result is a check's, maybe at a share of its limit.
func of(r algorithms.Result, c algorithms.Check) bool {
	return r.Check.Rule == c.Rule && r.Check.Key == c.Key &&
		r.Check.Limit.Period == c.Limit.Period && r.Check.Limit.Algorithm == c.Limit.Algorithm
}

// giveBackLocal undoes what was charged here to a request that was denied.
func (f *Fallback) giveBackLocal(ctx context.Context, results []algorithms.Result) {
	for i := range results {
		r := &results[i]
		if r.Charged == 0 || r.Source != algorithms.SourceFallback {
			continue
		}
		if f.Settle(ctx, 0, *r) == nil {
			r.Remaining += r.Charged
			r.Charged = 0
		}
	}
}

// align puts Next's results in the order of the checks. Those it did not decide
// have Err.
func align(checks []algorithms.Check, d algorithms.Decision, err error) (results []algorithms.Result, undecided []int) {
	if err == nil && len(d.Results) == len(checks) {
		results = d.Results
	} else {
		results = make([]algorithms.Result, len(checks))
		for i, c := range checks {
			results[i] = algorithms.Result{Check: c, Err: err}
			if r, ok := d.Result(c.Rule); ok && err == nil {
				results[i] = r
			} else if err == nil {
				results[i].Err = errNoAnswer
			}
		}
	}
	for i := range results {
		if results[i].Err != nil {
			undecided = append(undecided, i)
		}
	}
	return results, undecided
}

var errNoAnswer = errors.New("failmode: the limiter did not answer this check")

func (f *Fallback) takeLocal(ctx context.Context, charge bool, checks []algorithms.Check) (algorithms.Decision, error) {
	if charge {
		return f.local.Take(ctx, checks...)
	}
	return f.local.Peek(ctx, checks...)
}

// giveBack undoes what Next charged to a request that was denied after all. What
// cannot be given back stays charged, which errs towards denying. Nobody waits
// for it: the decision may have used up its budget.
func (f *Fallback) giveBack(ctx context.Context, results []algorithms.Result) {
	next, ok := f.Next.(algorithms.Counter)
	if !ok {
		return
	}
	var charged []algorithms.Result
	for i := range results {
		if r := &results[i]; r.Charged > 0 && r.Source != algorithms.SourceFallback {
			charged = append(charged, *r)
			r.Remaining += r.Charged
			r.Charged = 0
		}
	}
	if len(charged) > 0 {
		ctx = context.WithoutCancel(ctx)
		f.givingBack.begin(func() { _ = next.Settle(ctx, 0, charged...) }) // what is not given back stays charged
	}
}
