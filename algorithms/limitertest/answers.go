package limitertest

import (
	"context"
	"errors"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// Allow returns a limiter for which every request has room: tests of a handler use it where
// its limits are not what they test. Nothing is counted.
func Allow() algorithms.Limiter { return answers{} }

// Deny returns a limiter that denies the checks of one rule, or all checks if the rule is
// "". It bans nobody. The other checks of a denied request have room and are not charged. RetryAfter and
// ResetAfter are retryAfter, which tests see in the response's headers.
func Deny(rule string, retryAfter time.Duration) algorithms.Limiter {
	denies := func(c algorithms.Check) bool {
		return c.Rule == rule || rule == "" && !c.Look && !c.StoreOnly
	}
	return answers{denies: denies, retryAfter: retryAfter}
}

// Fail returns a limiter that decides nothing: Take and Peek return err. In a Middleware,
// rules with failmode.Open then pass, and all others deny with status 503.
func Fail(err error) algorithms.Limiter {
	if err == nil {
		err = errors.New("limitertest: nothing is decided")
	}
	return answers{err: err}
}

// answers is a limiter whose answers do not depend on what came before.
type answers struct {
	denies     func(algorithms.Check) bool // nil denies nothing
	retryAfter time.Duration
	err        error
}

// Take implements [algorithms.Limiter].
func (a answers) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	d, err := a.Peek(ctx, checks...)
	for i := range d.Results {
		if r := &d.Results[i]; d.Allowed && !r.Check.Look {
			r.Charged = max(r.Check.Cost, 1)
			r.Remaining = max(r.Remaining-r.Charged, 0)
		}
	}
	return d, err
}

// Peek implements [algorithms.Limiter].
func (a answers) Peek(_ context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	if a.err != nil {
		return algorithms.Decision{}, a.err
	}
	d := algorithms.Decision{Allowed: true, Results: make([]algorithms.Result, len(checks))}
	for i, c := range checks {
		r := algorithms.Result{Check: c, HasRoom: true, Remaining: c.Limit.Quota(), At: time.Now(), Source: algorithms.SourceOther}
		if a.denies != nil && a.denies(c) {
			r.HasRoom, r.Remaining, r.RetryAfter, r.ResetAfter = false, 0, a.retryAfter, a.retryAfter
		}
		d.Results[i], d.Allowed = r, d.Allowed && !r.Denies()
	}
	return d, nil
}

// Settle implements [algorithms.Limiter].
func (a answers) Settle(_ context.Context, charges ...algorithms.Charge) ([]algorithms.Result, error) {
	results := make([]algorithms.Result, len(charges))
	for i, c := range charges {
		results[i] = c.Result
		results[i].Charged = c.Cost
	}
	return results, a.err
}

// Reset implements [algorithms.Limiter].
func (a answers) Reset(context.Context, ...algorithms.Check) error { return a.err }
