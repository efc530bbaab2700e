package middleware

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/hidden"
	"github.com/seed75154129/ratelimit/internal/sampler"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// A ruleset is the rules in force, with their counts and hints.
type ruleset struct {
	rules      []rule
	watches    []watch         // one for each rule
	hidden     map[string]bool // by name; nil if no rule is hidden
	chargesOn  bool            // a rule has ChargeOn
	spares     bool            // a rule has ChargeOn and a Ban
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
	denials *sampler.Rate
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
		w := watch{rule: c.Rule, limit: c.Limit, quota: c.Limit.Quota(), series: new(series), denials: new(sampler.Rate)}
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

// Rules returns a copy of the rules in force. What is done to it changes nothing:
// its Keys and functions are the same, all else is its own.
func (m *Middleware) Rules() []Rule {
	set := m.rules.Load()
	rules := make([]Rule, len(set.rules))
	for i := range set.rules {
		rules[i] = set.rules[i].source.clone()
	}
	return rules
}

// clone copies what of a rule is not a Key or a function.
func (r *Rule) clone() Rule {
	c := *r
	c.Match, c.ChargeOn = slices.Clone(r.Match), slices.Clone(r.ChargeOn)
	c.Tiers, c.Costs = maps.Clone(r.Tiers), maps.Clone(r.Costs)
	return c
}

// sameData reports whether two rules differ at most in functions, and in keys of
// the same name.
func (r *Rule) sameData(other *Rule) bool {
	a, b := *r, *other
	nameA, nameB := keyfunc.Describe(a.Key).String(), keyfunc.Describe(b.Key).String()
	a.Key, a.LimitFor, a.CostFor = nil, nil, nil
	b.Key, b.LimitFor, b.CostFor = nil, nil, nil
	return nameA == nameB && reflect.DeepEqual(a, b)
}

// RulesFailed reports that new rules could not be read, or that SetRules returned
// an error, for loaders: it logs err and counts it as a failed SetRules, once.
// The rules in force stay. Until rules are replaced, each text is logged once.
func (m *Middleware) RulesFailed(err error) {
	if err == nil {
		return
	}
	m.setting.Lock()
	counted, logged := m.failures.note(err)
	if !counted {
		m.rejected.Add(1)
	}
	m.setting.Unlock()
	if !logged {
		m.logger.Error("ratelimit: rules not replaced", "error", err, "generation", m.rules.Load().generation)
	}
}

// RulesRevision counts the attempts to set rules: New's, and each call of SetRules
// or RulesFailed. It is for loaders: if the revision is not the one that a loader's
// own last attempt left, something else has replaced the rules, or failed to, and
// the loader should set its rules again.
func (m *Middleware) RulesRevision() uint64 {
	m.mustBeMade()
	return uint64(m.rules.Load().generation) + m.rejected.Load()
}

// maxFailures is how many texts are remembered, in case each is another one.
const maxFailures = 64

// failures are the errors since rules were last replaced. The zero value is none.
type failures struct {
	mu     sync.Mutex
	err    error           // the last one; nil once rules were replaced
	last   error           // what SetRules has counted and returned
	logged map[string]bool // texts
}

// note remembers an error, and reports whether it was counted and logged before.
func (f *failures) note(err error) (counted, logged bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	counted, logged = f.last != nil && errors.Is(err, f.last), f.logged[err.Error()]
	if len(f.logged) >= maxFailures {
		f.logged = nil
	}
	if f.logged == nil {
		f.logged = make(map[string]bool)
	}
	f.err, f.last, f.logged[err.Error()] = err, nil, true
	return counted, logged
}

// returned remembers an error that SetRules has counted and returns; nil means
// that rules were replaced.
func (f *failures) returned(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err, f.last = err, err
	if err == nil {
		f.logged = nil
	}
}

// current is the last error since rules were replaced; nil if there was none.
func (f *failures) current() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}
