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
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/headers"
	"github.com/seed75154129/ratelimit/internal/sampler"
	"github.com/seed75154129/ratelimit/internal/wait"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// A Config says what to limit and how. Only Limiter and Rules are required.
type Config struct {
	// Limiter decides: a *failmode.Guard or an *algorithms.Memory. A bare
	// *algorithms.Redis is refused, since it has no fail modes. If a limiter of
	// yours fails, rules in [failmode.Open] pass and all others answer 503. One
	// that decorates a Guard shows it by Unwrap() algorithms.Limiter, for the
	// metrics. The caller closes it.
	Limiter algorithms.Limiter

	// Rules are the limits. All that match a request apply, in one decision.
	Rules []Rule

	// Skip lists ServeMux patterns that are never limited, such as health checks.
	// A request must be spelled exactly so: its path is not cleaned for this, and
	// a trailing slash counts.
	Skip []string

	// Headers sets response headers on requests that a rule applies to; nil
	// means [headers.XRateLimit]. See [headers.All], [headers.IETFDraft11] and
	// [headers.Jitter]. A handler behind that sets one of its own replaces it.
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

	// Logger hears of mistakes, outages and denials; nil means slog.Default().
	Logger *slog.Logger

	// DenialLogRate is how many denials each rule logs per second, at level Info;
	// 0 means 1, negative none. The next line counts those that were left out.
	DenialLogRate int

	// LogKeys shows in the log, and in TopDenied, who was denied. Otherwise keys
	// are hashed with a secret of this process: equal keys look alike until it
	// ends, and nobody can find them out by guessing addresses.
	LogKeys bool

	// Registerer takes the metrics, which docs/metrics.md lists; nil means none.
	// Middlewares on one registry add up, and what they share counts once. None
	// ever leaves it: make each once, for the life of the process.
	Registerer prometheus.Registerer
}

// A Middleware limits requests. It is safe for concurrent use. It starts no
// goroutines and needs no closing.
type Middleware struct {
	limiter algorithms.Limiter
	rules   atomic.Pointer[ruleset]
	skip    []pattern
	headers headers.Writer
	denied  func(http.ResponseWriter, *http.Request, algorithms.Decision)
	observe func(*http.Request, algorithms.Decision)
	logger  *slog.Logger
	queue   queue
	failed  sampler.Sampler // requests refused
	failing sampler.Sampler // decisions of the limiter
	start   time.Time
	lines   int64 // about denials, in a second
	logKeys bool
	top     topDenied
	metrics *metrics
	setting sync.Mutex    // over SetRules
	refused atomic.Uint64 // calls of SetRules
}

// New returns a Middleware, or nil and every mistake in the configuration at
// once. It does not talk to the limiter: a Redis that is away now may be back
// later.
func New(c Config) (*Middleware, error) {
	rules, err := compile(c.Rules)
	skip, skipErr := compilePatterns("skip", c.Skip)
	if c.MaxWaiting < 0 {
		skipErr = errors.Join(skipErr, fmt.Errorf("middleware: max waiting: must not be negative, got %d", c.MaxWaiting))
	}
	if err := errors.Join(validateLimiter(c.Limiter), err, skipErr); err != nil {
		return nil, err
	}
	metrics, err := register(c.Registerer)
	if err != nil {
		return nil, err
	}
	m := &Middleware{
		skip:    skip,
		headers: c.Headers,
		denied:  c.Denied,
		observe: c.Observe,
		queue:   queue{most: int64(cmp.Or(c.MaxWaiting, 10_000)), metrics: metrics},
		logger:  cmp.Or(c.Logger, slog.Default()),
		start:   time.Now(),
		lines:   min(int64(cmp.Or(c.DenialLogRate, 1)), 1<<lineBits-1),
		logKeys: c.LogKeys,
		metrics: metrics,
		limiter: c.Limiter,
		failed:  sampler.Sampler{Every: time.Second},
		failing: sampler.Sampler{Every: time.Second},
	}
	if m.headers == nil {
		m.headers = headers.XRateLimit
	}
	if m.denied == nil {
		m.denied = headers.Deny
	}
	m.setRules(rules)
	metrics.attach(m)
	return m, nil
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
		d, set, err := m.decide(r, m.metrics, m.limiter.Take)
		switch {
		case err != nil:
			m.refuse(w, err)
			return
		case len(d.Results) == 0 && d.Allowed:
			next.ServeHTTP(w, r)
			return
		}
		if d, turn := m.answer(w, r, set, d); turn {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), decisionKey{}, passed{m, d})))
		}
	})
}

// answer sets the headers and waits until it is the request's turn. It responds
// to one that is denied, or whose context ends before its turn.
func (m *Middleware) answer(w http.ResponseWriter, r *http.Request, set *ruleset, d algorithms.Decision) (_ algorithms.Decision, turn bool) {
	delay := d.Delay()
	if delay > 0 {
		if m.queue.enter(r.Context(), delay) {
			defer m.queue.leave()
		} else {
			d = m.tooLate(r.Context(), d)
		}
	}
	m.see(r, set, d)
	m.headers(w.Header(), d)
	if !d.Allowed {
		headers.SetRetryAfter(w.Header(), d)
		m.denied(w, r, d)
		return d, false
	}
	if wait.For(r.Context(), delay) != nil {
		m.giveBack(r.Context(), d)
		fail(w, http.StatusServiceUnavailable) // read only if it was not the client that left
		return d, false
	}
	return d, true
}

// refuse answers a request of which nobody could say whether it is over: it
// must not pass unlimited.
func (m *Middleware) refuse(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	if required, ok := errors.AsType[*keyfunc.StatusError](err); ok && required.Status >= 400 && required.Status <= 499 {
		status = required.Status
	} else {
		m.failed.Do(func() { m.logger.Error("ratelimit: request refused", "error", err) })
	}
	fail(w, status)
}

// fail tells the client the status and no more; the next request may fare better.
func fail(w http.ResponseWriter, status int) {
	w.Header().Set("Cache-Control", "no-store")
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
	d, set, err := m.decide(r, m.metrics, m.limiter.Take)
	if err == nil && len(d.Results) > 0 {
		m.see(r, set, d)
	}
	return d, err
}

// Peek returns what Take would, and charges nothing.
func (m *Middleware) Peek(r *http.Request) (algorithms.Decision, error) {
	d, _, err := m.decide(r, nil, m.limiter.Peek)
	return d, err
}

// decide asks about what applies to a request, by the set of rules that it
// returns, and counts in mt how it went, unless that is nil.
func (m *Middleware) decide(r *http.Request, mt *metrics, take asker) (algorithms.Decision, *ruleset, error) {
	set := m.rules.Load()
	checks, begun, err := m.checks(r, set, mt)
	if err != nil {
		return algorithms.Decision{}, set, err
	}
	if len(checks) == 0 {
		return algorithms.Decision{Allowed: true}, set, nil
	}
	d, err := m.ask(r.Context(), take, checks)
	mt.decided(begun)
	if err != nil && mt != nil {
		set.failed(checks)
	}
	return d, set, err
}
