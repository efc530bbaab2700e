package middleware

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// maxLimits is how many counts a handler of Limits looks at.
const maxLimits = 64

// A limitView is what a client is told about a limit of its own.
type limitView struct {
	Name       string     `json:"name"`
	Tier       string     `json:"tier,omitempty"` // by TierBy
	Window     string     `json:"window"`         // "in flight" for in_flight
	Limit      int64      `json:"limit"`
	Remaining  int64      `json:"remaining"`
	ResetAfter seconds    `json:"reset_after"`
	ResetsAt   *time.Time `json:"resets_at,omitempty"`
	RetryAfter *seconds   `json:"retry_after,omitempty"` // if a request does not fit now
}

// Limits returns a handler that tells a client its own limits, as JSON. It lists each
// enforced rule that has a key for the request, whatever its Match, with the limit that
// the request has by it, and with all tiers of a TierBy. It leaves out rules that are
// Hidden or Disabled, that exempt the request, whose Key is a route or in the body, and
// whose Key returns an error. The functions of rules get the request for the limits
// itself.
//
//	mux.Handle("GET /rate_limit", limit.Limits())
//
// It charges nothing, and asks the limiter once. Put it behind [Middleware.Handler], so
// that it is limited itself. Of more than 64 limits the rest is left out, and logged. If
// the limits cannot be counted at the moment, the status is 503.
func (m *Middleware) Limits() http.Handler {
	m.mustBeMade()
	return http.HandlerFunc(m.serveLimits)
}

func (m *Middleware) serveLimits(w http.ResponseWriter, r *http.Request) {
	e := evaluation{m: m, match: match{set: m.rules.Load()}, request: r, peeks: true}
	e.resolveLimits()
	var d algorithms.Decision
	if len(e.checks) > 0 {
		var err error
		if d, err = m.callLimiter(r.Context(), m.limiter.Peek, true, e.checks); err != nil {
			m.refuse(w, r, err)
			return
		}
	}
	views := make([]limitView, len(d.Results))
	for i := range d.Results {
		if s := d.Results[i].Source; s == algorithms.SourceNone || s == algorithms.SourceFailOpen || s == algorithms.SourceFailClosed {
			fail(w, http.StatusServiceUnavailable)
			return
		}
		views[i] = limitOf(&d.Results[i], time.Now())
	}
	text, _ := json.Marshal(map[string]any{"limits": views}) // texts, numbers and times of this century
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(append(text, '\n')) // nobody to tell
}

// resolveLimits makes the checks that Limits shows.
func (e *evaluation) resolveLimits() {
	for i := range e.set.rules {
		rule := &e.set.rules[i]
		if rule.disabled || rule.hidden || keyfunc.Describe(rule.key).ReadsBody() || rule.traits.Route {
			continue
		}
		check := rule.check
		var err error
		if check.Key, err = e.keyOf(rule); err != nil || check.Key == "" {
			e.logLimits(rule, err)
			continue
		}
		if rule.terms.shadows(check.Rule, check.Key) {
			continue
		}
		tiers := []string{""}
		if rule.tierBy != nil {
			tiers = append(tiers, rule.asked()...)
		}
		for _, tier := range tiers {
			check.Tier = tier
			windows := e.limitsOf(i, rule, &check).windows
			if check.Tier != tier {
				continue // this client has none of its own there
			}
			for _, l := range windows {
				if len(e.checks) == maxLimits {
					e.set.hints.say(fmt.Sprintf("Limits shows %d limits, and leaves out the rest of rule %q and those after it", maxLimits, check.Rule))
					return
				}
				e.checks = append(e.checks, check)
				setLimit(&e.checks[len(e.checks)-1], l)
			}
		}
	}
}

// logLimits logs a Key that failed.
func (e *evaluation) logLimits(rule *rule, err error) {
	if _, refused := errors.AsType[*keyfunc.StatusError](err); err == nil || refused || errors.Is(err, keyfunc.ErrNoKey) || errors.Is(err, keyfunc.ErrSkip) {
		return
	}
	e.m.errors.Do(func() {
		e.m.logger.Error("ratelimit: rule left out of Limits: its key failed", "rule", rule.check.Rule, "error", err)
	})
}

func limitOf(r *algorithms.Result, now time.Time) limitView {
	v := limitView{
		Name: r.Check.Rule, Tier: r.Check.Tier, Window: "in flight", Limit: r.Check.Limit.Quota(), Remaining: max(r.Remaining, 0), ResetAfter: seconds(r.ResetAfter),
	}
	if !isHeld(r.Check.Limit) {
		v.Window = cmp.Or(r.Check.Limit.Calendar, span(r.Check.Limit.Period))
	}
	if r.ResetAfter > 0 && r.ResetAfter < algorithms.Never {
		at := now.Add(r.ResetAfter).UTC().Truncate(time.Second)
		v.ResetsAt = &at
	}
	if !r.HasRoom {
		v.RetryAfter = (*seconds)(&r.RetryAfter)
	}
	return v
}
