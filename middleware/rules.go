package middleware

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/seed75154129/ratelimit/keyfunc"
)

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
