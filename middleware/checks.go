package middleware

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/banned"
	"github.com/seed75154129/ratelimit/internal/hint"
	"github.com/seed75154129/ratelimit/internal/naming"
	"github.com/seed75154129/ratelimit/internal/step"
	"github.com/seed75154129/ratelimit/internal/topk"
	"github.com/seed75154129/ratelimit/internal/view"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// Checks returns the checks by which a rule counts a client, for the limiter's
// Peek and Reset. The client is named in plain values, one for each part of
// the rule's Key: "2001:db8::1" is counted as "2001:db8::/64", and an API key by
// its hash. [keyfunc.Everyone] takes no value. A Key without the method Keys takes
// one value, which is the key.
//
// Among Limit, Limits, Tiers and the client's Override, each combination of algorithm and
// period has its own count, and so a check of its own. If several limits share one count, the check has the limit that comes first: the rule's own, then
// those of Tiers by name, then the Override's. For [keyfunc.First], give the value without
// the key's number, unlike in an Override: each key that accepts it has checks. A limit
// that only LimitsFor returns has a check only if another has its algorithm and period.
// Behind them, a rule with a Ban has checks for the strikes of each key and for its ban, which
// has room unless the key is banned: to Reset all checks lifts the ban.
//
// Rule names are those of this middleware. If another middleware on the same limiter has
// a rule with the same name, algorithm and period, the two rules share one count.
func (m *Middleware) Checks(rule string, values ...string) ([]algorithms.Check, error) {
	m.mustBeMade()
	r, err := m.rules.Load().named(rule)
	if err != nil {
		return nil, err
	}
	keys, err := r.keysOf(values)
	if err != nil {
		return nil, err
	}
	return append(countsOf(r.mayHave(keys)), r.banChecks(keys)...), nil
}

// banChecks returns the checks for the bans of keys.
func (r *rule) banChecks(keys []string) (checks []algorithms.Check) {
	for _, key := range keys {
		if c := (algorithms.Check{Rule: r.check.Rule, Key: key, Fail: r.source.Fail}); r.source.Ban != (Ban{}) {
			checks = append(checks, r.ban.Checks(&c)...)
		}
	}
	return checks
}

// named returns the rule of a name.
func (set *ruleset) named(name string) (*rule, error) {
	at, ok := set.find(name, 0)
	if !ok {
		return nil, fmt.Errorf("%w: %.64q", ErrNoRule, name)
	}
	return &set.rules[at], nil
}

// keysOf returns the keys that plain values stand for; at least one.
func (r *rule) keysOf(values []string) (keys []string, err error) {
	keys, err = hint.Keys(keyfunc.Describe(r.source.Key), values)
	if err == nil && (len(keys) == 0 || slices.Contains(keys, "")) {
		err = errors.New("the value is empty")
	}
	if err != nil {
		return nil, fmt.Errorf("middleware: rule %q: key: %w", r.check.Rule, err)
	}
	return slices.Compact(slices.Sorted(slices.Values(keys))), nil
}

// checksOf returns the checks of keys by one limit.
func (r *rule) checksOf(l algorithms.Limit, keys []string) []algorithms.Check {
	checks := make([]algorithms.Check, len(keys))
	for i, key := range keys {
		c := r.check
		c.Key, c.Shadow, c.Limit = key, r.shadows(key), l
		checks[i] = c
	}
	return checks
}

// countsOf returns a check for each count that limits of the rule have.
func countsOf(limits []view.ClientLimit) (checks []algorithms.Check) {
	seen := make(map[step.Name]bool)
	for _, l := range limits {
		for _, c := range l.Checks {
			if id := naming.Of(&c); l.Limit != unlimited && !seen[id] {
				seen[id] = true
				checks = append(checks, c)
			}
		}
	}
	return checks
}

// Operator is what packages admin and rulefile need of a Middleware. It is not for programs, and
// may change.
func (m *Middleware) Operator() operator { return operator{m} }

// An operator sees keys in clear, and changes what is counted of them.
type operator struct{ m *Middleware }

// An editor adds overrides to a rule of the document that a Middleware follows, and returns
// the document's new version.
type editor = func(ctx context.Context, rule string, overrides []Override) (version int64, err error)

// SetEditor sets the editor of the document that the Middleware follows; nil if there is
// none.
func (o operator) SetEditor(e editor) { o.m.editor.Store(&e) }

// Editor returns what SetEditor has set.
func (o operator) Editor() editor {
	if e := o.m.editor.Load(); e != nil {
		return *e
	}
	return nil
}

// State returns the rules in force, and how many servers have an open circuit.
func (o operator) State() view.State {
	o.m.mustBeMade()
	set := o.m.rules.Load()
	s := view.State{Rules: make([]view.Rule, len(set.rules)), Generation: set.generation, Version: set.version, Share: o.m.share.text, Err: o.m.failure()}
	if o.m.limiter.guard != nil {
		for metric := range o.m.limiter.guard.Metrics() {
			if metric.Name == "ratelimit_breaker_open_shards" {
				s.Down = int(metric.Value)
			}
		}
	}
	for i := range set.rules {
		r := &set.rules[i].source
		s.Rules[i] = viewOf(r)
		for _, over := range r.Overrides[:min(view.MaxOverrides, len(r.Overrides))] {
			key, _ := keyOfOverride(r.Key, over.Client) // it is valid
			s.Rules[i].Overridden = append(s.Rules[i].Overridden,
				view.Override{Client: o.m.shown(key), Limit: view.LimitsOf(over.Limits), Until: over.Until.UTC(), Ended: over.ended(), Note: over.Note})
		}
	}
	return s
}

// Names returns what an Override of a rule can have as its Client to stand for a key; nil if
// none of the candidates does.
func (o operator) Names(rule, key string, candidates ...[]string) []string {
	r, err := o.m.rules.Load().named(rule)
	if err != nil {
		return nil
	}
	for _, client := range candidates {
		if k, err := keyOfOverride(r.source.Key, client); err == nil && k == key {
			return client
		}
	}
	return nil
}

// Denied returns the keys that were denied most, as TopDenied does, but in clear.
func (o operator) Denied() []topk.Entry { return o.m.top.List(o.m.now()) }

// Bans returns the bans that the Middleware knows of, whose keys are as Shown returns them.
func (o operator) Bans() *banned.List { return &o.m.bans }

// Shown returns how a key is shown.
func (o operator) Shown(key string) view.Key {
	kept := bounded(key)
	return view.Key{Text: o.m.shown(key), ID: o.m.keyID(kept), Kept: kept, Whole: !isBounded(kept)}
}

// Keys returns the keys that plain values stand for, as [Middleware.Checks] does.
func (o operator) Keys(rule string, values ...string) ([]string, error) {
	r, err := o.m.rules.Load().named(rule)
	if err != nil {
		return nil, err
	}
	return r.keysOf(values)
}

// Client returns the counts of keys by a rule.
func (o operator) Client(rule string, keys ...string) (c view.Client, err error) {
	r, err := o.m.rules.Load().named(rule)
	if err != nil {
		return c, err
	}
	c.Limits = r.mayHave(keys)
	c.Checks = append(countsOf(c.Limits), r.banChecks(keys)...)
	return c, nil
}

// Peek is the limiter's, for checks of rules, whose results say whether the keys are banned.
func (o operator) Peek(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	d, err := o.m.limiter.Peek(ctx, o.m.rules.Load().withLooks(checks)...)
	if err == nil {
		obey(&d, len(checks))
	}
	return d, err
}

// Ban is [Middleware.Ban], for keys, by somebody at an address.
func (o operator) Ban(ctx context.Context, rule string, d time.Duration, keys []string, address string) error {
	r, err := o.m.rules.Load().named(rule)
	if err != nil {
		return err
	}
	return o.m.banKeys(ctx, r, d, keys, banned.ByOperator+address)
}

// Logger returns where changes by operators are logged.
func (o operator) Logger() *slog.Logger { return o.m.config.Logger }
