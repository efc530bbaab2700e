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
	"github.com/seed75154129/ratelimit/internal/histogram"
	"github.com/seed75154129/ratelimit/internal/sampler"
)

// A Middleware limits requests. It is safe for concurrent use. It starts no
// goroutines and needs no closing.
type Middleware struct {
	limiter   algorithms.Limiter
	foreign   bool                         // the limiter is neither a Guard nor a Memory
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
	budget    time.Duration        // of a decision
	decisions *histogram.Histogram // how long they took
	delays    *histogram.Histogram // of requests that wait for their turn
	top       topDenied
	unsettled unsettled

	logger     *slog.Logger
	start      time.Time
	lines      int64 // about denials, in a second
	logKeys    bool
	errors     sampler.Sampler // of keys
	failing    sampler.Sampler // of the limiter
	misfits    sampler.Sampler // among limits that LimitFor returns
	unreturned sampler.Sampler // charges by response

	setting  sync.Mutex    // over attempts to replace the rules
	rejected atomic.Uint64 // attempts
	failures failures
}

// New returns a Middleware. Its error reports every mistake in the configuration
// at once. It does not contact the store: a Redis that is down now may be up later.
func New(c Config) (*Middleware, error) {
	share, shareErr := parseShare(c.Share)
	rules, rulesErr := compile(c.Rules, share)
	skip, err := c.validate()
	if err := errors.Join(err, shareErr, rulesErr); err != nil {
		return nil, err
	}
	m := &Middleware{
		limiter:    c.Limiter,
		foreign:    isForeign(c.Limiter),
		knownOver:  knownOver(c.Limiter),
		skip:       skip,
		skipFor:    c.SkipFor,
		tierFor:    c.TierFor,
		share:      share,
		headers:    c.Headers,
		denied:     c.Denied,
		refused:    c.Refused,
		observe:    c.Observe,
		room:       newRoom(cmp.Or(c.MaxWaiting, 10_000)),
		budget:     budgetOf(c.Limiter),
		decisions:  histogram.New(histogram.Latencies),
		delays:     histogram.New(delays),
		logger:     cmp.Or(c.Logger, slog.Default()),
		start:      time.Now(),
		lines:      min(int64(cmp.Or(c.DenialLogRate, 1)), 1<<lineBits-1),
		logKeys:    c.LogKeys,
		errors:     sampler.Sampler{Every: time.Second},
		failing:    sampler.Sampler{Every: time.Second},
		misfits:    sampler.Sampler{Every: time.Second},
		unreturned: sampler.Sampler{Every: time.Second},
	}
	if m.headers == nil {
		m.headers = headers.XRateLimit
	}
	m.setRules(rules)
	return m, nil
}

// mustBeMade panics with a message where a nil dereference would come later.
func (m *Middleware) mustBeMade() {
	if m == nil || m.limiter == nil {
		panic("middleware: the Middleware is nil or zero: make it with New, and look at New's error")
	}
}

// Limiter returns Config.Limiter, for Peek, Reset and Ban of Checks.
func (m *Middleware) Limiter() algorithms.Limiter {
	m.mustBeMade()
	return m.limiter
}

// Handler wraps next. A request that no rule applies to passes unchanged. For
// other requests the middleware sets the response headers before it calls next,
// which gets the decision from [FromContext]. Handler panics if next is nil.
//
// A connection that next takes over is one request, whatever is sent on it. So
// Handler belongs inside a handler that serves HTTP/2 on such connections, such as
// golang.org/x/net/http2/h2c.
//
// A request that a leaky_bucket delays waits here for its turn. It is denied at
// once if its context's deadline or the server's WriteTimeout comes earlier, or
// if [Config].MaxWaiting is reached. If its client hangs up, its slot is given
// back, and the other rules stay charged.
func (m *Middleware) Handler(next http.Handler) http.Handler {
	m.mustBeMade()
	if f, ok := next.(http.HandlerFunc); next == nil || ok && f == nil {
		panic("middleware: Handler: the next handler is nil")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isPreface(r) {
			w = &prefaceWriter{w, m.rules.Load().hints}
		}
		if found := m.match(r); found.first < 0 {
			next.ServeHTTP(w, r)
		} else {
			m.serve(w, r, next, &found)
		}
	})
}

// serve handles a request that rules match.
func (m *Middleware) serve(w http.ResponseWriter, r *http.Request, next http.Handler, found *match) {
	q := question{Middleware: m, request: r, handles: true}
	defer func() {
		q.turn.leave()
		if q.passage.end(); q.passage == nil {
			q.held.release()
		}
		q.crossing.end()
	}()
	err := q.decide(found, m.limiter.Take)
	q.hold()
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
		next.ServeHTTP(q.writer(r.Context(), w), r)
		if hints := q.set.hints; hints.watching() {
			hints.routed(r, q.set.rules, &q.decision)
		}
	}
}

// Take charges the rules that match r and returns the decision. If no rule
// applies, the decision is allowed and has no results. Take is for work that is
// not an HTTP request, such as a message in a connection, or a gRPC call, which r
// describes as a POST. The caller must wait for the decision's Delay. What a rule with
// in_flight counts is held until r's context ends; one that never ends is an error.
//
// An error means that a key refused r; it may be a [keyfunc.StatusError]. The
// other rules were charged. If one of them denies, Take returns that decision and
// no error.
func (m *Middleware) Take(r *http.Request) (algorithms.Decision, error) {
	m.mustBeMade()
	found, q := m.match(r), question{Middleware: m, request: r}
	defer func() { q.crossing.end() }() // it is made meanwhile
	if err := q.decide(&found, m.limiter.Take); err != nil {
		return algorithms.Decision{}, err
	}
	m.see(r, &q.verdict)
	q.hold()
	if q.refusal != nil {
		q.held.release()
	} else if err := q.held.untilDone(); err != nil {
		return algorithms.Decision{}, err
	}
	return q.outcome()
}

// Peek returns what Take would, and charges nothing.
func (m *Middleware) Peek(r *http.Request) (algorithms.Decision, error) {
	m.mustBeMade()
	found, q := m.match(r), question{Middleware: m, request: r, peeks: true}
	if err := q.decide(&found, m.limiter.Peek); err != nil {
		return algorithms.Decision{}, err
	}
	return q.outcome()
}
