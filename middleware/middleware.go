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
	skipFor   func(*http.Request) bool
	tierFor   func(*http.Request) string
	share     share
	headers   headers.Writer
	denied    func(http.ResponseWriter, *http.Request, algorithms.Decision)
	refused   func(http.ResponseWriter, *http.Request, error)
	observe   func(*http.Request, algorithms.Decision)
	room      *room
	budget    time.Duration // of a decision
	metrics   *metrics
	top       topDenied

	logger    *slog.Logger
	start     time.Time
	lines     int64 // about denials, in a second
	logKeys   bool
	errors    sampler.Sampler // of keys
	failing   sampler.Sampler // of the limiter
	misfits   sampler.Sampler // among limits that LimitFor returns
	unsettled sampler.Sampler // charges by response

	setting  sync.Mutex    // over SetRules
	rejected atomic.Uint64 // calls of SetRules
	failures failures      // to replace the rules
}

// New returns a Middleware, or nil and every mistake in the configuration at
// once. It does not talk to the limiter: a Redis that is down now may be up
// later.
func New(c Config) (*Middleware, error) {
	share, shareErr := parseShare(c.Share)
	rules, rulesErr := compile(c.Rules, share)
	skip, err := c.validate()
	if err := errors.Join(err, shareErr, rulesErr); err != nil {
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
		skipFor:   c.SkipFor,
		tierFor:   c.TierFor,
		share:     share,
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
		misfits:   sampler.Sampler{Every: time.Second},
		unsettled: sampler.Sampler{Every: time.Second},
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
		v, err := m.decide(r, m.metrics, m.limiter.Take, true)
		defer func() {
			v.turn.leave()
			v.passage.end()
		}()
		switch {
		case err != nil:
			m.refuse(w, r, err)
		case v.unlimited():
			next.ServeHTTP(w, r)
		default:
			if r, ok := m.answer(w, r, &v); ok {
				next.ServeHTTP(v.writer(r.Context(), w), r)
				if hints := v.set.hints; hints.watching() {
					hints.routed(r, v.set.rules, &v.decision)
				}
			}
		}
	})
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
	v, err := m.decide(r, m.metrics, m.limiter.Take, false)
	if err != nil {
		return algorithms.Decision{}, err
	}
	m.see(r, &v)
	return v.answer()
}

// Peek returns what Take would, and charges nothing.
func (m *Middleware) Peek(r *http.Request) (algorithms.Decision, error) {
	m.mustBeMade()
	v, err := m.decide(r, nil, m.limiter.Peek, false)
	if err != nil {
		return algorithms.Decision{}, err
	}
	return v.answer()
}
