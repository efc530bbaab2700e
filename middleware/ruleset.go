package middleware

import (
	"context"
	"net/http"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/hidden"
)

// A ruleset is the rules in force, with their counts and hints.
type ruleset struct {
	rules      []rule
	watches    []watch         // one for each rule
	hidden     map[string]bool // by name; nil if no rule is hidden
	chargesOn  bool            // a rule has ChargeOn
	spares     bool            // a rule has ChargeOn and a Ban
	holds      bool            // a rule may limit requests in flight
	hints      *hints
	generation int // 1 for the first
}

// shown returns a decision without what clients must not be told.
func (set *ruleset) shown(d algorithms.Decision) algorithms.Decision {
	if set.hidden == nil {
		return d
	}
	return hidden.Redact(d, func(rule string) bool { return set.hidden[rule] })
}

// A watch counts and logs what becomes of a rule's checks. When rules are
// replaced, the rule of the same name continues it.
type watch struct {
	rule    string
	limit   algorithms.Limit
	quota   int64 // of the limit
	series  *series
	denials *denialLog
}

// SetRules replaces the rules in one step, for requests that come from now on,
// and logs what changed. A mistake keeps the old rules: the error has every one,
// and the caller should log it. The rules are copied. Counts of rules that keep
// their name, algorithm and period stay.
func (m *Middleware) SetRules(rules []Rule) error {
	m.mustBeMade()
	compiled, err := compile(rules, m.share)
	m.setting.Lock()
	m.failures.returned(err)
	if err != nil {
		m.rejected.Add(1)
		m.setting.Unlock()
		return err
	}
	old, set := m.setRules(compiled)
	m.setting.Unlock()
	m.logChanges(old, set)
	return nil
}

// setRules returns the set that was in force, nil the first time, and the new one.
func (m *Middleware) setRules(rules []rule) (old, set *ruleset) {
	old = m.rules.Load()
	set = &ruleset{rules: rules, watches: make([]watch, len(rules)), hints: newHints(m.logger, len(rules)), generation: 1}
	for i := range rules {
		c := &rules[i].check
		w := watch{rule: c.Rule, limit: c.Limit, quota: c.Limit.Quota(), series: new(series), denials: new(denialLog)}
		if old != nil {
			if at, ok := old.find(c.Rule, i); ok {
				was := &old.watches[at]
				w.denials = was.denials
				if algorithmOf(was.limit) == algorithmOf(w.limit) {
					w.series = was.series
				}
			}
		}
		set.watches[i] = w
		set.chargesOn = set.chargesOn || rules[i].terms.chargeOn != nil
		set.spares = set.spares || rules[i].spares()
		set.holds = set.holds || rules[i].holds()
		if rules[i].hidden {
			if set.hidden == nil {
				set.hidden = make(map[string]bool)
			}
			set.hidden[c.Rule] = true
		}
	}
	for _, text := range oddities(rules, m.tierFor != nil) {
		set.hints.say(text)
	}
	if old != nil {
		set.generation = old.generation + 1
	}
	m.rules.Store(set)
	return old, set
}

// logChanges logs the names of the rules that were added, removed or changed. It
// does not notice a new function, or a Key of the same name: they cannot be compared.
func (m *Middleware) logChanges(old, set *ruleset) {
	var added, removed, changed []string
	for i := range set.rules {
		now := &set.rules[i]
		if at, ok := old.find(now.check.Rule, i); !ok {
			added = append(added, now.check.Rule)
		} else if was := &old.rules[at]; !was.source.sameData(&now.source) {
			changed = append(changed, now.check.Rule)
		}
	}
	for i := range old.rules {
		if _, ok := set.find(old.rules[i].check.Rule, i); !ok {
			removed = append(removed, old.rules[i].check.Rule)
		}
	}
	m.logger.Info("ratelimit: rules replaced", "rules", len(set.rules), "generation", set.generation,
		"added", added, "removed", removed, "changed", changed)
}

// find returns the index of a rule, which is most likely at from or soon after.
func (set *ruleset) find(name string, from int) (at int, ok bool) {
	for i := from; i < len(set.watches); i++ {
		if set.watches[i].rule == name {
			return i, true
		}
	}
	for i := range min(from, len(set.watches)) {
		if set.watches[i].rule == name {
			return i, true
		}
	}
	return 0, false
}

// sparing reports whether denials of a check do not always count towards its ban.
func (set *ruleset) sparing(c *algorithms.Check) bool {
	at, ok := set.find(c.Rule, 0)
	return ok && set.rules[at].spares() && !c.Shadow
}

// see counts and logs the results of a request's checks. They are mostly in the
// rules' order, so that finding their rules takes one pass.
func (m *Middleware) see(r *http.Request, v *verdict) {
	set, d := v.set, v.decision
	if len(d.Results) == 0 {
		return
	}
	next := 0
	for i := range d.Results {
		res := &d.Results[i]
		if res.Source == algorithms.SourceNone && !res.HasRoom && res.Err == nil {
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
		w.count(res, d.Allowed)
		if !res.HasRoom {
			m.seeDenial(r.Context(), w, res)
		}
	}
	if m.observe != nil {
		m.observe(r, d)
	}
}

func (m *Middleware) seeDenial(ctx context.Context, w *watch, r *algorithms.Result) {
	now := time.Since(m.start)
	if r.Source != algorithms.SourceFailClosed && !r.Check.Shadow {
		m.top.add(now, r.Check.Rule, r.Check.Key)
	}
	m.logDenial(ctx, w.denials, now, r)
}

// failed counts the checks of a call for which the limiter returned an error.
func (set *ruleset) failed(checks []algorithms.Check) {
	next := 0
	for i := range checks {
		if at, ok := set.find(checks[i].Rule, next); ok {
			set.watches[at].series.counts[outcomeError][originNone].Add(1)
			next = at + 1
		}
	}
}
