package middleware

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/view"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// maxQuotas is how many counts a QuotaHandler looks at.
const maxQuotas = 64

// A quotaView is what a client is told about a limit of its own.
type quotaView struct {
	Name       string        `json:"name"`
	Window     string        `json:"window"`
	Limit      int64         `json:"limit"`
	Remaining  int64         `json:"remaining"`
	ResetAfter view.Seconds  `json:"reset_after"`
	ResetsAt   *time.Time    `json:"resets_at,omitempty"`
	RetryAfter *view.Seconds `json:"retry_after,omitempty"` // if a request does not fit now
}

// QuotaHandler returns a handler that tells a client its own limits, as JSON. It lists each
// rule, whatever its Match, that is enforced and has a key for the request, with the limits
// that apply to the request. It leaves out rules that are Hidden, that exempt the request,
// or whose Key has a route, reads the body or returns an error. Keys, LimitsFor and TierFor
// are called with this handler's request.
//
//	mux.Handle("GET /rate_limit", limit.QuotaHandler())
//
// The answer is {"limits": [...]}. Each limit has these fields. Times are in seconds, with
// a fraction.
//
//	name         the rule
//	limit        the units that an unused key can spend at once
//	window       the time in which they are granted: "1m", a calendar such as "month@UTC", or
//	             "in flight"; for a bucket, the time in which its burst is refilled
//	remaining    the units left
//	reset_after  until all units are free; resets_at, that moment
//	retry_after  if the limit denies now: until a request has room
//
// It charges nothing, and asks the limiter once. Put it behind [Middleware.Handler], so
// that it is limited itself. It lists at most 64 limits, and logs a hint if there are more.
// If the limits cannot be counted at the moment, the status is 503.
func (m *Middleware) QuotaHandler() http.Handler {
	m.mustBeMade()
	return http.HandlerFunc(m.serveQuotas)
}

func (m *Middleware) serveQuotas(w http.ResponseWriter, r *http.Request) {
	e := evaluation{m: m, match: match{set: m.rules.Load()}, request: r, peeks: true}
	var d algorithms.Decision
	if checks := e.quotaChecks(); len(checks) > 0 {
		var err error
		if d, err = m.ask(r.Context(), e.set, true, checks); err != nil {
			m.refuse(w, r, err)
			return
		}
	}
	views := make([]quotaView, len(d.Results))
	for i := range d.Results {
		if s := d.Results[i].Source; s == algorithms.SourceNone || s == algorithms.SourceFailOpen || s == algorithms.SourceFailClosed {
			fail(w, http.StatusServiceUnavailable)
			return
		}
		views[i] = quotaOf(&d.Results[i])
	}
	text, _ := json.Marshal(map[string]any{"limits": views}) // texts, numbers and times of this century
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(append(text, '\n')) // nobody to tell
}

// quotaChecks makes the checks that a QuotaHandler shows.
func (e *evaluation) quotaChecks() (checks []algorithms.Check) {
	for i := range e.set.rules {
		rule := &e.set.rules[i]
		if rule.source.Hidden || keyfunc.Describe(rule.source.Key).ReadsBody() || rule.traits.Route {
			continue
		}
		check := rule.check
		var err error
		if check.Key, err = e.keyOf(rule); err != nil || check.Key == "" {
			e.logQuotaKey(rule, err)
			continue
		}
		if rule.shadows(check.Key) {
			continue
		}
		for _, l := range e.limitsOf(i, check.Key) {
			if len(checks) == maxQuotas {
				e.set.hints.say("QuotaHandler shows %d limits, and leaves out the rest of rule %q and those after it", maxQuotas, check.Rule)
				return checks
			}
			check.Limit = l
			checks = append(checks, check)
		}
	}
	return checks
}

// logQuotaKey logs a Key that failed.
func (e *evaluation) logQuotaKey(rule *rule, err error) {
	if _, refused := errors.AsType[*keyfunc.StatusError](err); err == nil || refused || errors.Is(err, keyfunc.ErrNoKey) || errors.Is(err, keyfunc.ErrSkip) {
		return
	}
	e.m.errors.Do(func() {
		e.m.config.Logger.Error("ratelimit: rule left out of QuotaHandler: its key failed", "rule", rule.check.Rule, "error", err)
	})
}

func quotaOf(r *algorithms.Result) quotaView {
	v := quotaView{
		Name: r.Check.Rule, Window: refillName(r.Check.Limit), Limit: r.Check.Limit.Quota(), Remaining: max(r.Remaining, 0), ResetAfter: view.Seconds(r.ResetAfter),
	}
	if r.ResetAfter > 0 && r.ResetAfter < algorithms.Never {
		at := r.At.Add(r.ResetAfter).UTC().Truncate(time.Second)
		v.ResetsAt = &at
	}
	if r.Denies() {
		v.RetryAfter = (*view.Seconds)(&r.RetryAfter)
	}
	return v
}

// refillName names the time in which the units of a limit are granted.
func refillName(l algorithms.Limit) string {
	if took := refill(l); !isWindow(l) && !isHeld(l) && took < math.MaxInt64 {
		return view.Span(time.Duration(took).Round(time.Millisecond))
	}
	return windowName(l)
}
