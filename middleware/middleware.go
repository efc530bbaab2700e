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
	"github.com/seed75154129/ratelimit/internal/pattern"
	"github.com/seed75154129/ratelimit/internal/refundable"
	"github.com/seed75154129/ratelimit/internal/sampler"
	"github.com/seed75154129/ratelimit/internal/topk"
	"github.com/seed75154129/ratelimit/internal/waitqueue"
)

// A Middleware limits requests. It is safe for concurrent use. It starts no
// goroutines and needs no closing.
type Middleware struct {
	limiter    algorithms.Limiter
	foreign    bool                         // the limiter is neither a Guard nor a Memory
	knownOver  func(*algorithms.Check) bool // without asking the limiter's store
	rules      atomic.Pointer[ruleset]
	skip       []pattern.Pattern
	skipFor    func(*http.Request) bool
	tierFor    func(*http.Request) string
	share      share
	headers    headers.Writer
	denied     func(http.ResponseWriter, *http.Request, algorithms.Decision)
	refused    func(http.ResponseWriter, *http.Request, error)
	observe    func(*http.Request, algorithms.Decision)
	queue      *waitqueue.Queue
	budget     time.Duration        // of a decision
	decisions  *histogram.Histogram // how long they took
	delays     *histogram.Histogram // of requests that a leaky_bucket delays
	top        topk.Counter         // of denied keys
	refundable refundable.Charges

	logger     *slog.Logger
	start      time.Time
	denialRate int64 // lines about denials of a rule in a second
	logKeys    bool
	errors     sampler.Sampler // of keys
	failing    sampler.Sampler // of the limiter
	badLimits  sampler.Sampler // that LimitFor returned
	unrefunded sampler.Sampler // charges by response

	setting  sync.Mutex    // held while rules are replaced
	rejected atomic.Uint64 // attempts to replace them
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
		queue:      waitqueue.New(cmp.Or(c.MaxWaiting, 10_000)),
		budget:     budgetOf(c.Limiter),
		decisions:  histogram.New(histogram.Latencies),
		delays:     histogram.New(delays),
		logger:     cmp.Or(c.Logger, slog.Default()),
		start:      time.Now(),
		denialRate: min(int64(cmp.Or(c.DenialLogRate, 1)), sampler.MaxRate),
		logKeys:    c.LogKeys,
		errors:     sampler.Sampler{Every: time.Second},
		failing:    sampler.Sampler{Every: time.Second},
		badLimits:  sampler.Sampler{Every: time.Second},
		unrefunded: sampler.Sampler{Every: time.Second},
	}
	if m.headers == nil {
		m.headers = headers.XRateLimit
	}
	m.setRules(rules)
	return m, nil
}

// mustBeMade panics with a message instead of a nil dereference.
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
