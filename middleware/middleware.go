// Package middleware limits how often clients may call HTTP handlers: it wraps
// an [http.Handler], resolves who is asking, takes every rule that matches the
// request in one decision, and answers 429 to what is over a limit.
//
// Import it as ratelimit:
//
//	import ratelimit "github.com/seed75154129/ratelimit/middleware"
package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/headers"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// A Config says what to limit and how. Only Limiter and Rules are required.
type Config struct {
	// Limiter decides: a [Redis], an [algorithms.Memory], or any other. One that
	// can fail is guarded by a [failmode.Fallback], unless it already is.
	Limiter algorithms.Limiter

	// Rules are the limits. All that match a request apply, in one decision.
	Rules []Rule

	// Except lists ServeMux patterns that are never limited, such as health
	// checks. A request is excepted only if it is spelled exactly so: its path
	// is not cleaned for this, and a trailing slash counts.
	Except []string

	// Headers sets response headers on requests that a rule applies to; nil
	// means [headers.XRateLimit].
	Headers headers.Writer

	// Denied responds to a request that was denied; nil means [headers.Deny].
	// Retry-After and what Headers sets are already there.
	Denied func(http.ResponseWriter, *http.Request, algorithms.Decision)

	// Observe sees every decision of Handler and Take, before the response; nil
	// means nobody does. It runs on the request's goroutine.
	Observe func(*http.Request, algorithms.Decision)

	// MaxWaiting bounds the requests that wait for their turn in a leaky_bucket,
	// over all keys; 0 means 10,000. What would be one more is denied.
	MaxWaiting int

	// Logger hears of mistakes and outages; nil means slog.Default().
	Logger *slog.Logger
}

// A Middleware limits requests. It is safe for concurrent use.
type Middleware struct {
	limiter algorithms.Limiter
	rules   atomic.Pointer[ruleset]
	except  []pattern
	headers headers.Writer
	denied  func(http.ResponseWriter, *http.Request, algorithms.Decision)
	observe func(*http.Request, algorithms.Decision)
	logger  *slog.Logger
	queue   queue
	failed  sampler
}

// New returns a Middleware, or nil and every mistake in the configuration at
// once. It does not talk to the limiter: a Redis that is away now may be back
// later.
func New(c Config) (*Middleware, error) {
	rules, err := compile(c.Rules)
	except, exceptErr := compilePatterns("except", c.Except)
	if c.MaxWaiting < 0 {
		exceptErr = errors.Join(exceptErr, fmt.Errorf("middleware: max waiting: must not be negative, got %d", c.MaxWaiting))
	}
	if err := errors.Join(validateLimiter(c.Limiter), err, exceptErr); err != nil {
		return nil, err
	}
	m := &Middleware{
		except:  except,
		headers: c.Headers,
		denied:  c.Denied,
		observe: c.Observe,
		queue:   queue{most: int64(cmp.Or(c.MaxWaiting, 10_000))},
		logger:  cmp.Or(c.Logger, slog.Default()),
	}
	if m.headers == nil {
		m.headers = headers.XRateLimit
	}
	if m.denied == nil {
		m.denied = headers.Deny
	}
	m.limiter = guard(c.Limiter, m.logger)
	m.setRules(rules)
	return m, nil
}

// SetRules replaces the rules at once, for requests that come from now on. If
// it returns an error, which names every mistake, the old rules stay. The rules
// are copied; the counts of a rule that keeps its name, algorithm and period stay.
func (m *Middleware) SetRules(rules []Rule) error {
	compiled, err := compile(rules)
	if err != nil {
		return err
	}
	m.setRules(compiled)
	return nil
}

// A ruleset is the rules in force, and what is noticed about them.
type ruleset struct {
	rules []rule
	hints *hints
}

func (m *Middleware) setRules(rules []rule) {
	m.rules.Store(&ruleset{rules, newHints(m.logger, len(rules))})
}

// Handler wraps next. A request that no rule applies to goes through untouched.
// For the others the response headers are set first; next finds the decision by
// [FromContext].
//
// A request that a leaky_bucket delays waits here for its turn, unless its
// client leaves, or its context's deadline comes earlier: then it is denied at
// once.
func (m *Middleware) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d, err := m.decide(r, m.limiter.Take)
		switch {
		case err != nil:
			m.refuse(w, err)
			return
		case len(d.Results) == 0 && d.Allowed:
			next.ServeHTTP(w, r)
			return
		}
		if d, turn := m.answer(w, r, d); turn {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), decisionKey{}, passed{m, d})))
		}
	})
}

// answer sets the headers and waits until it is the request's turn. It responds
// to one that is denied, or whose context ends before its turn.
func (m *Middleware) answer(w http.ResponseWriter, r *http.Request, d algorithms.Decision) (_ algorithms.Decision, turn bool) {
	delay := d.Delay()
	if delay > 0 {
		if m.queue.enter(r.Context(), delay) {
			defer m.queue.leave()
		} else {
			d = m.tooLate(r.Context(), d)
		}
	}
	m.see(r, d)
	m.headers(w.Header(), d)
	if !d.Allowed {
		headers.RetryAfter(w.Header(), d)
		m.denied(w, r, d)
		return d, false
	}
	if !sleep(r.Context(), delay) {
		m.giveBack(r.Context(), d)
		w.WriteHeader(http.StatusServiceUnavailable) // read only if it was not the client that left
		return d, false
	}
	return d, true
}

// refuse answers a request of which nobody could say whether it is over: it
// must not pass unlimited.
func (m *Middleware) refuse(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	if required, ok := errors.AsType[*keyfunc.StatusError](err); ok {
		status = required.Status()
	} else {
		m.failed.do(func() { m.logger.Error("ratelimit: request refused", "error", err) })
	}
	http.Error(w, http.StatusText(status), status)
}

// Take charges the rules that match a request and returns the decision, which
// is allowed and has no results where none applies. It is for what is no
// request of its own, such as a message inside a connection. It does not wait:
// the caller has to wait out the decision's Delay, if it has one.
//
// Its error says that a key function failed or that a check is invalid. The
// request must not pass then. One that [keyfunc.Required] refused has a
// [keyfunc.StatusError].
func (m *Middleware) Take(r *http.Request) (algorithms.Decision, error) {
	d, err := m.decide(r, m.limiter.Take)
	if err == nil && len(d.Results) > 0 {
		m.see(r, d)
	}
	return d, err
}

func (m *Middleware) see(r *http.Request, d algorithms.Decision) {
	if m.observe != nil {
		m.observe(r, d)
	}
}

// Peek returns what Take would, and charges nothing. If the limiter is no
// [algorithms.Counter] the error is [errors.ErrUnsupported].
func (m *Middleware) Peek(r *http.Request) (algorithms.Decision, error) {
	counter, ok := m.limiter.(algorithms.Counter)
	if !ok {
		return algorithms.Decision{}, fmt.Errorf("middleware: peek: %T: %w", m.limiter, errors.ErrUnsupported)
	}
	return m.decide(r, counter.Peek)
}

func (m *Middleware) decide(r *http.Request, ask func(context.Context, ...algorithms.Check) (algorithms.Decision, error)) (algorithms.Decision, error) {
	checks, err := m.checks(r)
	if err != nil {
		return algorithms.Decision{}, err
	}
	if len(checks) == 0 {
		return algorithms.Decision{Allowed: true}, nil
	}
	d, err := ask(r.Context(), checks...)
	if err != nil {
		return algorithms.Decision{}, fmt.Errorf("middleware: %w", err)
	}
	return d, nil
}

// checks returns what applies to a request.
func (m *Middleware) checks(r *http.Request) ([]algorithms.Check, error) {
	t := targetOf(r)
	for i := range m.except {
		if m.except[i].matchExactly(&t) {
			return nil, nil
		}
	}
	set := m.rules.Load()
	asked, watching := set.hints.watch(r, m)
	var checks []algorithms.Check
	for i := range set.rules {
		rule := &set.rules[i]
		if !rule.matches(&t) {
			continue
		}
		key, err := rule.key(asked)
		if watching {
			r.Body = asked.Body // a key function may have read it
			set.hints.looked(r, i, rule, key, err)
		}
		switch {
		case err == nil, errors.Is(err, keyfunc.ErrNoKey):
		case errors.Is(err, keyfunc.ErrSkip):
			continue
		default:
			return nil, fmt.Errorf("middleware: rule %q: key: %w", rule.check.Rule, err)
		}
		if checks == nil {
			checks = make([]algorithms.Check, 0, len(set.rules)-i)
		}
		check := rule.check
		if err == nil {
			check.Key = key
		}
		checks = append(checks, check)
	}
	if watching {
		set.hints.done(set.rules, checks)
	}
	return checks, nil
}

// guard makes a limiter that can fail follow the rules' fail modes.
func guard(l algorithms.Limiter, logger *slog.Logger) algorithms.Limiter {
	for inner := l; ; {
		switch inner.(type) {
		case *algorithms.Memory, *failmode.Fallback:
			return l
		}
		w, ok := inner.(interface{ Unwrap() algorithms.Limiter })
		if !ok {
			return &failmode.Fallback{Next: l, Logger: logger}
		}
		inner = w.Unwrap()
	}
}
