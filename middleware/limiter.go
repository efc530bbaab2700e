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

// Unexported functions of the packages below.
var (
	lent   = algorithms.Internal.Open(&inside.Allow)
	guards = failmode.Internal.Open(&inside.Allow)
)

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

// An asker is a limiter's Take or Peek.
type asker func(context.Context, ...algorithms.Check) (algorithms.Decision, error)

// foreignPatience bounds a decision of a limiter that is neither a Guard nor a
// Memory.
const foreignPatience = time.Second

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

// ask lets the limiter decide. The error wraps [algorithms.ErrInvalidCheck].
//
// A client that hangs up must not make a foreign limiter fail, and so pass the
// rules in mode open: its request is decided without it. A Guard does the same.
func (m *Middleware) ask(ctx context.Context, take asker, checks []algorithms.Check) (algorithms.Decision, error) {
	if m.foreign {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), foreignPatience)
		defer cancel()
	}
	d, err := take(ctx, checks...)
	if errors.Is(err, algorithms.ErrInvalidCheck) {
		return algorithms.Decision{}, fmt.Errorf("middleware: %w", err)
	}
	if err != nil {
		d = algorithms.Decision{Results: make([]algorithms.Result, len(checks))}
		for i := range checks {
			d.Results[i] = algorithms.Result{Check: checks[i], Err: err}
		}
	}
	if err := standIn(&d); err != nil {
		m.failing.Do(func() {
			m.logger.Error("ratelimit: limiter failed; rules in mode open pass, all others answer 503", "error", err)
		})
		if !d.Allowed {
			_ = algorithms.Refund(ctx, m.limiter, d) // what stays charged errs towards denying
		}
	}
	return d, nil
}

// retryFailed is the RetryAfter of a check that is denied because the limiter
// failed. Nobody knows when it will be back.
const retryFailed = time.Second

// standIn decides the checks that the limiter could not decide, by their fail
// modes: open passes, all others deny. It returns the error of one of them. A
// [failmode.Guard] leaves none, and is the better choice: it counts meanwhile.
func standIn(d *algorithms.Decision) (err error) {
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

// defaultBudget is how long a decision may take where that is unknown.
const defaultBudget = 50 * time.Millisecond

// budgetOf is how long a decision of a limiter may take, as far as is known.
func budgetOf(l algorithms.Limiter) time.Duration {
	for inner := range layers.Of(l) {
		if r, ok := inner.(*algorithms.Redis); ok {
			return cmp.Or(r.Budget, defaultBudget)
		}
	}
	return 0
}

// knownOver returns a function that reports whether a check would be denied, as
// far as this process knows. It does not ask a store, and may be wrong.
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

// algorithmOf names the algorithm of a limit, also where Algorithm is "".
func algorithmOf(l algorithms.Limit) string {
	return step.Limit{Burst: l.Burst, Algorithm: string(l.Algorithm)}.Name()
}
