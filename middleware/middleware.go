package middleware

import (
	"cmp"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/headers"
	"github.com/seed75154129/ratelimit/internal/sampler"
)

// A Middleware limits requests. It is safe for concurrent use. It starts no
// goroutines and needs no closing.
type Middleware struct {
	limiter   algorithms.Limiter
	knownOver func(*algorithms.Check) bool // without asking the limiter's store
	rules     atomic.Pointer[ruleset]
	skip      []pattern
	headers   headers.Writer
	denied    func(http.ResponseWriter, *http.Request, algorithms.Decision)
	refused   func(http.ResponseWriter, *http.Request, error)
	observe   func(*http.Request, algorithms.Decision)
	room      *room
	budget    time.Duration // of a decision
	metrics   *metrics
	top       topDenied

	logger  *slog.Logger
	start   time.Time
	lines   int64 // about denials, in a second
	logKeys bool
	errors  sampler.Sampler // of keys
	failing sampler.Sampler // of the limiter

	setting  sync.Mutex    // over SetRules
	rejected atomic.Uint64 // calls of SetRules
}

// New returns a Middleware, or nil and every mistake in the configuration at
// once. It does not talk to the limiter: a Redis that is down now may be up
// later.
func New(c Config) (*Middleware, error) {
	rules, rulesErr := compile(c.Rules)
	skip, err := c.validate()
	if err := errors.Join(err, rulesErr); err != nil {
		return nil, err
	}
	metrics, err := register(c.Registerer)
	if err != nil {
		return nil, err
	}
	m := &Middleware{
		limiter:   c.Limiter,
		knownOver: knownOver(c.Limiter),
		skip:      skip,
		headers:   c.Headers,
		denied:    c.Denied,
		refused:   c.Refused,
		observe:   c.Observe,
		room:      newRoom(cmp.Or(c.MaxWaiting, 10_000)),
		budget:    budgetOf(c.Limiter),
		metrics:   metrics,
		logger:    cmp.Or(c.Logger, slog.Default()),
		start:     time.Now(),
		lines:     min(int64(cmp.Or(c.DenialLogRate, 1)), 1<<lineBits-1),
		logKeys:   c.LogKeys,
		errors:    sampler.Sampler{Every: time.Second},
		failing:   sampler.Sampler{Every: time.Second},
	}
	if m.headers == nil {
		m.headers = headers.XRateLimit
	}
	m.setRules(rules)
	metrics.attach(m)
	return m, nil
}

// mustBeMade panics with a message where a nil dereference would come later.
func (m *Middleware) mustBeMade() {
	if m == nil || m.limiter == nil {
		panic("middleware: the Middleware is nil or zero: make it with New, and look at New's error")
	}
}

// Handler wraps next. A request that no rule applies to goes through untouched.
// For the others the response headers are set first; next finds the decision by
// [FromContext]. Handler panics if next is nil.
//
// A request that a leaky_bucket delays waits here for its turn. It is denied at
// once if its context's deadline, or the server's WriteTimeout, comes earlier, or
// if there is no room for it; see [Config]. If its client hangs up, its slot is
// given back, and the other rules stay charged.
func (m *Middleware) Handler(next http.Handler) http.Handler {
	m.mustBeMade()
	if f, ok := next.(http.HandlerFunc); next == nil || ok && f == nil {
		panic("middleware: Handler: the next handler is nil")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if found := m.match(r); found.first < 0 {
			next.ServeHTTP(w, r)
		} else {
			m.serve(w, r, next, &found)
		}
	})
}

// serve handles a request that rules match.
func (m *Middleware) serve(w http.ResponseWriter, r *http.Request, next http.Handler, found *match) {
	q := question{Middleware: m, request: r, metrics: m.metrics, handles: true}
	defer func() { q.turn.leave() }()
	err := q.decide(found, m.limiter.Take)
	switch {
	case err != nil:
		m.refuse(w, r, err)
	case q.unlimited():
		next.ServeHTTP(w, r)
	default:
		r, ok := m.answer(w, r, &q.verdict)
		if !ok {
			return
		}
		next.ServeHTTP(w, r)
		if hints := q.set.hints; hints.watching() {
			hints.routed(r, q.set.rules, &q.decision)
		}
	}
}

// Take charges the rules that match r, and returns the decision: one that is
// allowed and has no results where no rule applies. It is for what is no HTTP
// request of its own: a message in a connection, or a gRPC call as the POST that
// it is. The caller waits out the decision's Delay.
//
// The error says that a key refused r, such as a [keyfunc.StatusError]. The
// other rules were charged; if one denies, the decision says so and there is no
// error.
func (m *Middleware) Take(r *http.Request) (algorithms.Decision, error) {
	m.mustBeMade()
	found, q := m.match(r), question{Middleware: m, request: r, metrics: m.metrics}
	if err := q.decide(&found, m.limiter.Take); err != nil {
		return algorithms.Decision{}, err
	}
	m.see(r, &q.verdict)
	return q.outcome()
}

// Peek returns what Take would, and charges nothing.
func (m *Middleware) Peek(r *http.Request) (algorithms.Decision, error) {
	m.mustBeMade()
	found, q := m.match(r), question{Middleware: m, request: r}
	if err := q.decide(&found, m.limiter.Peek); err != nil {
		return algorithms.Decision{}, err
	}
	return q.outcome()
}
