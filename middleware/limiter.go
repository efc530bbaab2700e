package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/internal/inside"
	"github.com/seed75154129/ratelimit/internal/layers"
	"github.com/seed75154129/ratelimit/internal/view"
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
			for _, err := range view.Each(v.Validate()) {
				errs = append(errs, fmt.Errorf("middleware: limiter: %w", err))
			}
		}
	}
	return errors.Join(errs...)
}

// builtin are the limiters of this module that a limiter is or wraps, the outermost of
// each kind; nil if there is none.
type builtin struct {
	guard  *failmode.Guard
	memory *algorithms.Memory
	redis  *algorithms.Redis
}

func builtinOf(l algorithms.Limiter) (b builtin) {
	for inner := range layers.Of(l) {
		switch inner := inner.(type) {
		case *failmode.Guard:
			b.guard = cmp.Or(b.guard, inner)
		case *algorithms.Memory:
			b.memory = cmp.Or(b.memory, inner)
		case *algorithms.Redis:
			b.redis = cmp.Or(b.redis, inner)
		}
	}
	return b
}

// isForeign reports whether no Guard and no Memory decides.
func (b *builtin) isForeign() bool { return b.guard == nil && b.memory == nil }

// foreignTimeout bounds a decision of a limiter that is neither a Guard nor a Memory.
const foreignTimeout = time.Second

// callLimiter calls the limiter's Take or Peek. Checks that it could not decide follow
// their fail modes. The error wraps [algorithms.ErrInvalidCheck], or
// [errors.ErrUnsupported] if the limiter cannot peek.
//
// The end of the request's context does not reach a foreign limiter. Otherwise a client
// that hangs up could make it fail, and so pass the rules in mode open. A Guard does the
// same.
func (m *Middleware) callLimiter(ctx context.Context, peeks bool, checks []algorithms.Check) (algorithms.Decision, error) {
	if m.foreign {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), foreignTimeout)
		defer cancel()
	}
	d, err := m.call(ctx, peeks, checks)
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

// call calls the limiter's Take or Peek. The compiler sees that a Guard and a Memory keep no
// checks, so that a request's checks may be on its stack. Other limiters get a copy.
func (m *Middleware) call(ctx context.Context, peeks bool, checks []algorithms.Check) (algorithms.Decision, error) {
	guard, guarded := m.limiter.(*failmode.Guard)
	memory, inMemory := m.limiter.(*algorithms.Memory)
	switch {
	case peeks:
		return m.limiter.Peek(ctx, slices.Clone(checks)...)
	case guarded:
		return guard.Take(ctx, checks...)
	case inMemory:
		return memory.Take(ctx, checks...)
	}
	return m.limiter.Take(ctx, slices.Clone(checks)...)
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

// budgetOf returns how long a decision may take; 0 if that is unknown.
func (b *builtin) budgetOf() time.Duration {
	if b.redis == nil {
		return 0
	}
	return cmp.Or(b.redis.Budget, defaultBudget)
}

// knownOver reports whether a check would be denied, as far as this process knows. It
// does not call a store, and may be wrong.
func (b *builtin) knownOver(c algorithms.Check) bool {
	switch {
	case b.guard != nil:
		return guards.KnownOver(b.guard, &c)
	case b.memory != nil:
		d, err := b.memory.Peek(context.Background(), c)
		return err == nil && !d.Allowed
	}
	return false
}
