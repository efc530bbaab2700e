package middleware

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/headers"
	"github.com/seed75154129/ratelimit/internal/banned"
	"github.com/seed75154129/ratelimit/internal/histogram"
	"github.com/seed75154129/ratelimit/internal/pattern"
	"github.com/seed75154129/ratelimit/internal/sampler"
	"github.com/seed75154129/ratelimit/internal/topk"
)

// A Middleware limits requests. Make it with [New]. It is safe for concurrent use. It
// starts no goroutines and needs no closing.
type Middleware struct {
	config    Config // with defaults; what is compiled of it is in other fields
	limiter   *limiter
	rules     atomic.Pointer[ruleset]
	editor    atomic.Pointer[editor]
	unseen    bool // no function of the program's is given denials
	skip      []pattern.Pattern
	share     share
	queue     *waitQueue
	decisions *histogram.Histogram // how long decisions took
	delays    *histogram.Histogram // of requests that a leaky_bucket delays
	top       topk.Counter         // of denied keys
	bans      banned.List

	start        time.Time
	errors       sampler.Sampler // of keys
	badLimits    sampler.Sampler // that LimitsFor returned
	unsettledLog sampler.Sampler
	unsettled    atomic.Uint64

	rejected atomic.Uint64 // attempts to replace rules
	setting  sync.Mutex    // held while they are replaced
	failed   error         // the last error since then; nil if there was none; setting guards it
}

// mustBeMade panics with a message instead of a nil dereference.
func (m *Middleware) mustBeMade() {
	if m == nil || m.limiter == nil {
		panic("middleware: the Middleware is nil or zero: make it with New, and look at New's error")
	}
}

// failure returns the last error since rules were replaced; nil if there was none.
func (m *Middleware) failure() error {
	m.setting.Lock()
	defer m.setting.Unlock()
	return m.failed
}

const ms = time.Millisecond

// delays are the bounds for the time that a leaky_bucket delays requests.
var delays = []time.Duration{ms, 5 * ms, 10 * ms, 25 * ms, 50 * ms, 100 * ms, 250 * ms, 500 * ms,
	time.Second, 2500 * ms, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute}

// New returns a Middleware. Its error joins all mistakes in the configuration; each
// mistake in a rule is a [*RuleError].
// New does not wait for the store, so that the program can start while Redis is down.
func New(c Config) (*Middleware, error) {
	if c.Limiter == nil {
		c.Limiter = new(algorithms.Memory)
	}
	share, shareErr := parseShare(c.Share)
	rules, rulesErr := compile(c.Rules, share)
	skip, err := c.validate()
	if err := errors.Join(err, shareErr, rulesErr); err != nil {
		return nil, err
	}
	c.Rules, c.Logger, c.DenialLogRate = nil, cmp.Or(c.Logger, slog.Default()), min(cmp.Or(c.DenialLogRate, 1), sampler.MaxRate)
	if c.LogSecret = slices.Clone(c.LogSecret); c.LogSecret == nil {
		c.LogSecret = newSecret()
	}
	unseen := c.Headers == nil && c.Denied == nil && c.Observe == nil
	if c.Headers == nil {
		c.Headers = headers.XRateLimit
	}
	m := &Middleware{
		unseen:    unseen,
		config:    c,
		limiter:   newLimiter(c.Limiter, c.Logger),
		skip:      skip,
		share:     share,
		queue:     newWaitQueue(cmp.Or(c.MaxWaiting, 10_000)),
		decisions: histogram.New(histogram.Latencies),
		delays:    histogram.New(delays),
		start:     time.Now(),
	}
	m.rules.Store(newRuleset(rules, new(ruleset), &m.config, m.share))
	if m.limiter.guard != nil {
		m.limiter.guard.Connect()
	}
	return m, nil
}

// newSecret returns a secret of this process, so that nobody who reads its log can find
// an address by hashing all of them.
var newSecret = sync.OnceValue(func() []byte {
	secret := make([]byte, sha256.Size)
	_, _ = rand.Read(secret) // never fails
	return secret
})

// Limiter returns Config.Limiter. Its Peek and Reset take what [Middleware.Checks]
// returns.
func (m *Middleware) Limiter() algorithms.Limiter {
	m.mustBeMade()
	return m.limiter.Limiter
}

// Rules returns a copy of the rules in force. The copy shares only Keys and functions
// with these rules.
func (m *Middleware) Rules() []Rule {
	set := m.rules.Load()
	rules := make([]Rule, len(set.rules))
	for i := range set.rules {
		rules[i] = set.rules[i].source.clone()
	}
	return rules
}

// SetRules replaces the rules in one step, for all later requests, and logs the
// names of the rules that were added, removed or changed. If a rule is invalid, the old
// rules stay in force. The error joins all mistakes; it is logged and counted as by
// [Middleware.RulesFailed]. The rules are copied.
// A rule that keeps its name, algorithm and period keeps its counts.
func (m *Middleware) SetRules(rules []Rule) error { return m.SetRulesVersion(rules, 0) }

// SetRulesVersion is SetRules for loaders. The version is that of the document that has the
// rules; 0 means none. The log, the metrics and package admin show the version.
func (m *Middleware) SetRulesVersion(rules []Rule, version int64) error {
	m.mustBeMade()
	compiled, err := compile(rules, m.share)
	if err != nil {
		m.RulesFailed(err)
		return err
	}
	m.setting.Lock()
	m.failed = nil
	old := m.rules.Load()
	set := newRuleset(compiled, old, &m.config, m.share)
	set.version = version
	m.rules.Store(set)
	m.setting.Unlock()
	set.logChanges(old, m.config.Logger)
	return nil
}

// RulesFailed is for loaders: it reports that new rules could not be read. It counts and
// logs err like a failed SetRules. An error that repeats the last one is not logged
// again until rules are replaced. The rules in force stay.
func (m *Middleware) RulesFailed(err error) {
	if err == nil {
		return
	}
	m.setting.Lock()
	again := m.failed != nil && m.failed.Error() == err.Error()
	m.failed = err
	m.rejected.Add(1)
	m.setting.Unlock()
	if !again {
		m.config.Logger.Error("ratelimit: rules not replaced", "error", err, "generation", m.rules.Load().generation)
	}
}

// RulesRevision returns the number of attempts to set rules: New, and each call of
// SetRules and of RulesFailed. It is for loaders: if the revision has changed since a
// loader's last attempt, another caller has set rules or tried to. Then the loader
// should set its rules again.
func (m *Middleware) RulesRevision() uint64 {
	m.mustBeMade()
	return uint64(m.rules.Load().generation) + m.rejected.Load()
}
