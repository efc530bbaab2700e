package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/internal/given"
	"github.com/seed75154129/ratelimit/internal/sampler"
	"github.com/seed75154129/ratelimit/internal/view"
)

// validateLimiter reports everything that is wrong with a limiter. A limiter's
// Validate answers for what it wraps.
func validateLimiter(l algorithms.Limiter) error {
	if given.IsNil(l) {
		return fmt.Errorf("middleware: limiter: a nil %T; leave Limiter out to count in this process only, or use &failmode.Guard{Limiter: redis}", l)
	}
	var errs []error
	guarded, validated := false, false
	endless := false // the last layer wraps another one
	for inner := range failmode.Layers(l) {
		endless = false
		switch inner := inner.(type) {
		case *failmode.Guard:
			guarded = true
		case *algorithms.Redis:
			if !guarded {
				errs = append(errs, errors.New("middleware: limiter: a bare *algorithms.Redis has no fail modes; "+
					"write Limiter: ratelimit.Redis(&redis.Options{…}, \"shop\"), or &failmode.Guard{Limiter: redis}, and close it"))
			}
		case interface{ Unwrap() algorithms.Limiter }:
			if endless = !given.IsNil(inner.Unwrap()); !endless {
				errs = append(errs, fmt.Errorf("middleware: limiter: %T wraps no limiter: its Unwrap returns nil; set the limiter that it wraps", inner))
			}
		default:
			if hidden := hiddenIn(reflect.ValueOf(inner), 4); hidden == noLimiter {
				errs = append(errs, fmt.Errorf("middleware: limiter: %T embeds a nil Limiter, so a method that it does not have itself panics; embed new(algorithms.Memory), or limitertest.Allow()", inner))
			} else if hidden != nil && !guarded {
				errs = append(errs, fmt.Errorf("middleware: limiter: %T hides the %s in it; give it the method Unwrap() algorithms.Limiter", inner, hidden))
			}
		}
		if v, ok := inner.(interface{ Validate() error }); ok && !validated {
			validated = true
			for _, err := range view.Each(v.Validate()) {
				errs = append(errs, fmt.Errorf("middleware: limiter: %w", err))
			}
		}
	}
	if endless {
		errs = append(errs, fmt.Errorf("middleware: limiter: %T wraps itself, or more than 32 limiters: look at what its Unwrap returns", l))
	}
	return errors.Join(errs...)
}

var (
	guardType = reflect.TypeFor[*failmode.Guard]()
	redisType = reflect.TypeFor[*algorithms.Redis]()
	noLimiter = reflect.TypeFor[algorithms.Limiter]()
)

// hiddenIn returns the type of a Guard or a Redis in the fields of a limiter without Unwrap,
// at most some levels down; noLimiter if an embedded Limiter is nil, and nil if there is
// none of these. It looks only into limiters: what else a limiter has may be of any size, and
// other goroutines may be changing it.
func hiddenIn(v reflect.Value, levels int) reflect.Type {
	v = reflect.Indirect(v)
	if v.Kind() != reflect.Struct || levels == 0 {
		return nil
	}
	for field, f := range v.Fields() {
		if f.Kind() == reflect.Interface {
			if f.IsNil() && field.Anonymous && f.Type() == noLimiter {
				return noLimiter
			}
			f = f.Elem()
		}
		switch {
		case !f.IsValid():
		case f.Type() == guardType, f.Type() == redisType:
			return f.Type()
		case f.Kind() == reflect.Struct, f.Type().Implements(noLimiter):
			if hidden := hiddenIn(f, levels-1); hidden != nil {
				return hidden
			}
		}
	}
	return nil
}

// A limiter is Config.Limiter, with what the Middleware knows of it.
type limiter struct {
	algorithms.Limiter

	// The limiters of this module that it is or wraps, the outermost of each kind; nil if
	// there is none.
	guard  *failmode.Guard
	memory *algorithms.Memory
	redis  *algorithms.Redis

	logger *slog.Logger
	failed sampler.Sampler
}

func newLimiter(outermost algorithms.Limiter, logger *slog.Logger) *limiter {
	l := &limiter{Limiter: outermost, logger: logger}
	for inner := range failmode.Layers(outermost) {
		switch inner := inner.(type) {
		case *failmode.Guard:
			l.guard = cmp.Or(l.guard, inner)
		case *algorithms.Memory:
			l.memory = cmp.Or(l.memory, inner)
		case *algorithms.Redis:
			l.redis = cmp.Or(l.redis, inner)
		}
	}
	return l
}

// foreignTimeout bounds a call of a limiter that is neither a Guard nor a Memory.
const foreignTimeout = time.Second

// foreign reports whether only foreignTimeout bounds the limiter's calls.
func (l *limiter) foreign() bool { return l.guard == nil && l.memory == nil }

// Settle has the limiter settle. The end of ctx does not stop it.
func (l *limiter) Settle(ctx context.Context, charges ...algorithms.Charge) ([]algorithms.Result, error) {
	ctx = context.WithoutCancel(ctx)
	if l.foreign() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, foreignTimeout)
		defer cancel()
	}
	results, err := l.Limiter.Settle(ctx, charges...)
	if err == nil && len(results) != len(charges) {
		err = fmt.Errorf("%T: %d results for %d charges: return one for each charge, in their order", l.Limiter, len(results), len(charges))
	}
	return results, err
}

// ask calls the limiter's Take or Peek. Checks that it could not decide follow their fail
// modes. The error wraps [algorithms.ErrInvalidCheck], or [errors.ErrUnsupported] if the
// limiter cannot peek.
//
// The end of the request's context does not reach a foreign limiter. Otherwise a client
// that hangs up could make it fail, and so pass the rules in mode open. A Guard does the
// same.
//
// The compiler sees that a Guard and a Memory keep no checks, so that a request's checks may
// be on its stack. Other limiters get a copy.
func (l *limiter) ask(ctx context.Context, peeks bool, checks []algorithms.Check) (d algorithms.Decision, err error) {
	if l.foreign() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), foreignTimeout)
		defer cancel()
	}
	guard, guarded := l.Limiter.(*failmode.Guard)
	memory, inMemory := l.Limiter.(*algorithms.Memory)
	switch {
	case peeks:
		d, err = l.Peek(ctx, slices.Clone(checks)...)
	case guarded:
		d, err = guard.Take(ctx, checks...)
	case inMemory:
		d, err = memory.Take(ctx, checks...)
	default:
		d, err = l.Take(ctx, slices.Clone(checks)...)
	}
	if err == nil && !guarded && !inMemory {
		if d.Results, err = complete(&d, checks); err != nil {
			err = fmt.Errorf("%T: %w", l.Limiter, err)
		}
	}
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
		l.failed.Do(func() {
			l.logger.Error("ratelimit: limiter failed; rules in mode open pass, all others answer 503", "error", err)
		})
		if !d.Allowed {
			l.refund(ctx, d)
		}
	}
	return d, nil
}

// complete returns the results of a decision by a limiter of a user's own, with what it has
// left out, or what is wrong with the decision. Other limiters may add results.
func complete(d *algorithms.Decision, checks []algorithms.Check) ([]algorithms.Result, error) {
	results, now := slices.Clone(d.Results), time.Now() // the limiter may keep its own
	if len(results) < len(checks) {
		return nil, fmt.Errorf("%d results for %d checks: return one for each check, in their order", len(results), len(checks))
	}
	decided, denies := true, -1
	for i := range results {
		r := &results[i]
		if i < len(checks) && r.Check.Rule == "" {
			r.Check = checks[i]
		}
		if i < len(checks) && checks[i].Look && r.Charged > 0 {
			return nil, errors.New("it charges a look at a ban: it must obey Check.Look, and charge it nothing")
		}
		if r.At.IsZero() {
			r.At = now
		}
		nobody := undecided(r)
		if r.Source == algorithms.SourceNone && (r.HasRoom || r.RetryAfter > 0) {
			r.Source = algorithms.SourceOther
		}
		decided = decided && r.Err == nil
		if r.Denies() || nobody && !r.Check.Shadow {
			denies = i
		}
	}
	switch {
	case !decided && !slices.ContainsFunc(results, func(r algorithms.Result) bool { return r.Err == nil && r.Denies() }):
		for i := range results { // the fail modes decide, also what nothing is said of
			if r := &results[i]; undecided(r) {
				r.Err = errors.New("the limiter has not decided")
			}
		}
	case !decided:
	case d.Allowed && denies >= 0:
		return nil, fmt.Errorf("the decision is Allowed, and the result of rule %q has no room: set HasRoom, or Allowed to false", results[denies].Check.Rule)
	case !d.Allowed && denies < 0:
		return nil, errors.New("the decision is not Allowed, and every result has room: set HasRoom to false in that of the rule that denies")
	case !d.Allowed && !slices.ContainsFunc(results, func(r algorithms.Result) bool { return r.Denies() }):
		results[denies].Source = algorithms.SourceOther
	}
	return results, nil
}

// refund refunds the charges of a decision. A charge that cannot be refunded stays, which
// errs towards denying.
func (l *limiter) refund(ctx context.Context, d algorithms.Decision) {
	_ = algorithms.Refund(ctx, l, d)
}

// reuse gives a denial back that no function of the program's has seen, for the next one.
func (l *limiter) reuse(d *algorithms.Decision) {
	switch own := l.Limiter.(type) { // not a limiter around it, which may have kept the denial
	case *algorithms.Memory:
		own.Reuse(*d)
	case *failmode.Guard:
		own.Reuse(*d)
	}
	*d = algorithms.Decision{}
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
		r.Source, r.HasRoom, r.RetryAfter = algorithms.SourceFailClosed, false, retryFailed
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

// budget returns how long a decision may take; 0 if that is unknown.
func (l *limiter) budget() time.Duration {
	if l.redis == nil {
		return 0
	}
	return cmp.Or(l.redis.Budget, defaultBudget)
}

// knownOver reports whether a check would be denied, as far as this process knows. It
// does not call a store, and may be wrong.
func (l *limiter) knownOver(c algorithms.Check) bool {
	switch {
	case l.guard != nil:
		return l.guard.KnownOver(&c)
	case l.memory != nil:
		d, err := l.memory.Peek(context.Background(), c)
		return err == nil && !d.Allowed
	}
	return false
}
