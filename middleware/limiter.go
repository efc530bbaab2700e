package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/internal/inside"
	"github.com/seed75154129/ratelimit/internal/layers"
	"github.com/seed75154129/ratelimit/internal/step"
)

// guards has unexported functions of package failmode.
var guards = failmode.Internal.Open(&inside.Allow)

var errBareRedis = errors.New("middleware: limiter: a bare *algorithms.Redis has no fail modes; " +
	"write Limiter: &failmode.Guard{Limiter: redis}, and close it")

// validateLimiter reports everything that is wrong with a limiter. A limiter's
// Validate answers for what it wraps.
func validateLimiter(l algorithms.Limiter) error {
	if inside.IsNil(l) {
		return errors.New("middleware: limiter: required; use &failmode.Guard{Limiter: redis}, or new(algorithms.Memory) to count in this process only")
	}
	var errs []error
	guarded, validated := false, false
	for inner := range layers.Of(l) {
		switch inner.(type) {
		case *failmode.Guard:
			guarded = true
		case *algorithms.Redis:
			if !guarded {
				errs = append(errs, errBareRedis)
			}
		}
		if v, ok := inner.(interface{ Validate() error }); ok && !validated {
			validated = true
			for _, err := range each(v.Validate()) {
				errs = append(errs, fmt.Errorf("middleware: limiter: %w", err))
			}
		}
	}
	return errors.Join(errs...)
}

// A limiterCall is a limiter's Take or Peek.
type limiterCall func(context.Context, ...algorithms.Check) (algorithms.Decision, error)

// foreignTimeout bounds a decision of a limiter that is neither a Guard nor a Memory.
const foreignTimeout = time.Second

// isForeign reports whether a limiter is neither a Guard nor a Memory, nor wraps one.
func isForeign(l algorithms.Limiter) bool {
	for inner := range layers.Of(l) {
		switch inner.(type) {
		case *failmode.Guard, *algorithms.Memory:
			return false
		}
	}
	return true
}

// callLimiter calls the limiter. Checks that it could not decide follow their fail modes.
// The error wraps [algorithms.ErrInvalidCheck], or [errors.ErrUnsupported] if the limiter
// cannot peek.
//
// The end of the request's context does not reach a foreign limiter. Otherwise a client
// that hangs up could make it fail, and so pass the rules in mode open. A Guard does the
// same.
func (m *Middleware) callLimiter(ctx context.Context, call limiterCall, peeks bool, checks []algorithms.Check) (algorithms.Decision, error) {
	if m.foreign {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), foreignTimeout)
		defer cancel()
	}
	d, err := call(ctx, checks...)
	if errors.Is(err, algorithms.ErrInvalidCheck) || peeks && errors.Is(err, errors.ErrUnsupported) {
		return algorithms.Decision{}, fmt.Errorf("middleware: %w", err)
	}
	if err != nil {
		d = algorithms.Decision{Results: make([]algorithms.Result, len(checks))}
		for i := range checks {
			d.Results[i] = algorithms.Result{Check: checks[i], Err: err}
		}
	}
	if err := applyFailModes(&d); err != nil {
		m.failing.Do(func() {
			m.logger.Error("ratelimit: limiter failed; rules in mode open pass, all others answer 503", "error", err)
		})
		if !d.Allowed {
			m.refund(ctx, d)
		}
	}
	return d, nil
}

// refund refunds the charges of a decision. A charge that cannot be refunded stays, which
// errs towards denying.
func (m *Middleware) refund(ctx context.Context, d algorithms.Decision) {
	_ = algorithms.Refund(ctx, m.limiter, d)
}

// retryFailed is the RetryAfter of a check that is denied because the limiter failed. It
// is not known when the limiter will recover.
const retryFailed = time.Second

// applyFailModes decides the checks that the limiter could not decide: mode open passes,
// all others deny. It returns the error of one of them. A [failmode.Guard] leaves no such
// checks.
func applyFailModes(d *algorithms.Decision) (err error) {
	for i := range d.Results {
		r := &d.Results[i]
		if r.Err == nil || r.Source == algorithms.SourceFailOpen || r.Source == algorithms.SourceFailClosed {
			continue
		}
		err = r.Err
		r.Source, r.RetryAfter = algorithms.SourceFailClosed, retryFailed
		if r.Check.Fail == failmode.Open {
			r.Source, r.HasRoom, r.RetryAfter = algorithms.SourceFailOpen, true, 0
		}
	}
	if err == nil {
		return nil
	}
	d.Allowed = true
	for i := range d.Results {
		d.Allowed = d.Allowed && !d.Results[i].Denies()
	}
	return err
}

// defaultBudget is how long a decision may take if that is unknown.
const defaultBudget = 50 * time.Millisecond

// budgetOf returns how long a decision of a limiter may take; 0 if that is unknown.
func budgetOf(l algorithms.Limiter) time.Duration {
	for inner := range layers.Of(l) {
		if r, ok := inner.(*algorithms.Redis); ok {
			return cmp.Or(r.Budget, defaultBudget)
		}
	}
	return 0
}

// knownOver returns a function that reports whether a check would be denied, as far as
// this process knows. The function does not call a store, and may be wrong.
func knownOver(l algorithms.Limiter) func(*algorithms.Check) bool {
	for inner := range layers.Of(l) {
		switch l := inner.(type) {
		case *failmode.Guard:
			return func(c *algorithms.Check) bool { return guards.KnownOver(l, c) }
		case *algorithms.Memory:
			return func(c *algorithms.Check) bool {
				d, err := l.Peek(context.Background(), *c)
				return err == nil && !d.Allowed
			}
		}
	}
	return func(*algorithms.Check) bool { return false }
}

// algorithmOf returns the name of a limit's algorithm, also if Algorithm is "".
func algorithmOf(l algorithms.Limit) string {
	return step.Limit{Burst: l.Burst, Algorithm: string(l.Algorithm)}.Name()
}
