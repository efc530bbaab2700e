package middleware

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"iter"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/banned"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// maxShown is how many bytes of a key are kept for logs and TopDenied.
const maxShown = 128

// record counts and logs the results of a request's checks, decided at now, and calls Observe. The
// results are mostly in the rules' order, so that finding their rules takes one pass.
func (m *Middleware) record(r *http.Request, set *ruleset, d *algorithms.Decision, now time.Duration) {
	if len(d.Results) == 0 {
		return
	}
	next := 0
	for rest := d.Results; len(rest) > 0; {
		windows := 1 // of a rule, which are one outcome
		for windows < len(rest) && rest[windows].Check.Rule == rest[0].Check.Rule {
			windows++
		}
		ofRule := rest[:windows]
		res := outcomeOf(ofRule)
		rest = rest[windows:]
		if res == nil {
			continue
		}
		at := next
		if at >= len(set.watches) || set.watches[at].rule != res.Check.Rule { // to be quick: find is not inlined
			var ok bool
			if at, ok = set.find(res.Check.Rule, next); !ok {
				continue // the limiter added it
			}
		}
		next = at + 1
		w := &set.watches[at]
		w.count(res, ofRule, d.Allowed)
		if !res.HasRoom {
			m.recordDenial(r.Context(), w, res, now)
		}
	}
	if m.config.Observe != nil {
		m.config.Observe(r, *d)
	}
}

// undecided reports whether nobody has decided a result.
func undecided(r *algorithms.Result) bool {
	return r.Source == algorithms.SourceNone && !r.HasRoom && r.Err == nil
}

// outcomeOf returns the result that says what becomes of a request by the windows of a
// rule: one that denies, and of several the one that began a ban or denies for the
// longest time; else the tightest. It is nil if none was decided.
func outcomeOf(windows []algorithms.Result) (one *algorithms.Result) {
	for i := range windows {
		r := &windows[i]
		switch {
		case undecided(r):
		case one == nil, one.HasRoom && !r.HasRoom:
			one = r
		case !one.HasRoom && r.HasRoom || one.BanBegan:
		case r.BanBegan, !r.HasRoom && r.RetryAfter > one.RetryAfter, r.HasRoom && r.Remaining < one.Remaining:
			one = r
		}
	}
	return one
}

// recordDenial counts a denial for TopDenied, notes a ban, and logs the denial unless its
// rule has logged enough in this second.
func (m *Middleware) recordDenial(ctx context.Context, w *watch, r *algorithms.Result, now time.Duration) {
	key := bounded(r.Check.Key)
	if r.Source != algorithms.SourceFailClosed && !r.Check.Shadow {
		m.top.Add(now, r.Check.Rule, key)
	}
	if r.BannedFor > 0 {
		by := ""
		if r.BanBegan {
			by = banned.ByRule
		}
		m.noteBan(&r.Check, by, r.BannedFor)
	}
	suppressed, ok := m.mayLog(ctx, w, now)
	if !ok {
		return
	}
	attrs := []slog.Attr{
		slog.String("rule", r.Check.Rule),
		slog.String("key", m.shown(r.Check.Key)),
		slog.String("algorithm", algorithmOf(r.Check.Limit).String()),
		slog.String("source", r.Source.String()),
	}
	if r.RetryAfter < algorithms.Never {
		attrs = append(attrs, slog.Duration("retry_after", r.RetryAfter))
	}
	attrs = append(attrs, slog.String("limit", r.Check.Limit.String()), slog.Int64("cost", r.Check.Cost), slog.Int64("suppressed", suppressed))
	if r.BannedFor > 0 {
		attrs = append(attrs, slog.Bool("banned", true))
	}
	if r.Check.Shadow {
		attrs = append(attrs, slog.Bool("shadow", true))
	}
	m.config.Logger.LogAttrs(ctx, slog.LevelInfo, "ratelimit: denied", attrs...)
}

// mayLog reports whether a denial or a refusal is to be logged, and how many were not
// since the last one.
func (m *Middleware) mayLog(ctx context.Context, w *watch, now time.Duration) (suppressed int64, ok bool) {
	if m.config.DenialLogRate <= 0 || !m.config.Logger.Enabled(ctx, slog.LevelInfo) {
		return 0, false
	}
	return w.denials.Take(now, int64(m.config.DenialLogRate))
}

// logRefusal logs a refusal by a rule's key, such as [keyfunc.Required], like a denial. All
// other errors of keys are logged as errors.
func (m *Middleware) logRefusal(ctx context.Context, w *watch, err error) {
	refused, ok := required(err)
	if !ok {
		return
	}
	if suppressed, ok := m.mayLog(ctx, w, m.now()); ok {
		m.config.Logger.LogAttrs(ctx, slog.LevelInfo, "ratelimit: refused", slog.String("rule", w.rule), slog.Int("status", refused.Status),
			slog.String("reason", strings.TrimPrefix(refused.Reason, keyfunc.ErrNoKey.Error()+": ")), slog.Int64("suppressed", suppressed))
	}
}

// A DeniedKey is a key that was denied often.
type DeniedKey struct {
	Rule  string // the rule's Name
	Key   string // hashed as in the log, unless Config.LogKeys; "" for requests without a key
	Count int64  // denials; too high by at most Error, never too low
	Error int64  // see Count
}

// TopDenied returns the n keys that were denied most in the last ten to twenty minutes,
// those with the most denials first. Denials by a rule in shadow do not count. Denials
// by [failmode.Closed] do not count either, because they say nothing about the client.
//
// The memory is bounded: 256 keys are counted at a time. Every key with more than one in
// 256 of the denials is among them, and no Error is larger than one in 256 of the denials.
func (m *Middleware) TopDenied(n int) []DeniedKey {
	m.mustBeMade()
	entries := m.top.List(m.now())
	top := make([]DeniedKey, min(max(n, 0), len(entries)))
	for i := range top {
		top[i] = DeniedKey(entries[i])
		top[i].Key = m.shown(top[i].Key)
	}
	return top
}

// shown returns a key as logs and TopDenied show it. The empty key, of requests
// without one, is no secret.
func (m *Middleware) shown(key string) string {
	key = bounded(key)
	if m.config.LogKeys || key == "" {
		return key
	}
	return m.keyID(key)
}

// keyID is a hash of a key that names it in all processes with the same secret.
func (m *Middleware) keyID(key string) string {
	h := hmac.New(sha256.New, m.config.LogSecret)
	h.Write([]byte(key))
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// bounded replaces a long key by its hash. Clients that choose their keys must not
// fill the memory or the log.
func bounded(key string) string {
	if len(key) <= maxShown {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return "#" + hex.EncodeToString(sum[:16])
}

// isBounded reports whether a key may be a hash that [bounded] has made.
func isBounded(key string) bool { return len(key) == 33 && key[0] == '#' }

// Metrics yields what the Middleware has counted. Its Limiter has metrics of its own.
func (m *Middleware) Metrics() iter.Seq[algorithms.Metric] {
	m.mustBeMade()
	return func(yield func(algorithms.Metric) bool) { slices.Values(m.metrics())(yield) }
}

// metrics takes no lock that a request waits for.
func (m *Middleware) metrics() []algorithms.Metric {
	set, failing := m.rules.Load(), 0.0
	if m.failure() != nil {
		failing = 1
	}
	all := []algorithms.Metric{
		m.decisions.Metric("ratelimit_decision_duration_seconds"),
		{Name: "ratelimit_queue_waiting", Value: float64(m.queue.length())},
		m.delays.Metric("ratelimit_queue_delay_seconds"),
		{Name: "ratelimit_settlements_failed_total", Value: float64(m.unsettled.Load())},
		{Name: "ratelimit_rules", Value: float64(len(set.rules))},
		{Name: "ratelimit_rules_generation", Value: float64(set.generation)},
		{Name: "ratelimit_rules_version", Value: float64(set.version)},
		{Name: "ratelimit_rules_errors_total", Value: float64(m.rejected.Load())},
		{Name: "ratelimit_rules_failing", Value: failing},
	}
	from := m.limiter.expected()
	for i := range set.rules {
		all = set.watches[i].appendTo(all, &set.rules[i], from)
	}
	return all
}
