package middleware

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/view"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// Checks returns the checks by which a rule counts a client, for the limiter's
// Peek, Reset and Ban. The client is named in plain values, one for each part of
// the rule's Key: "2001:db8::1" is counted as "2001:db8::/64", and an API key by
// its hash. [keyfunc.Everyone] takes no value. A Key without the method Keys takes
// one value, which is the key.
//
// There is a check for each algorithm, period and tier of TierBy among Limit, Limits,
// Tiers and the client's Override, because each has a count of its own. If several
// limits share one count, the check has the first of them: the rule's own, then Tiers by
// name, then the Override. For [keyfunc.First], which may have several
// keys for one value, give the value without the number in front that an Override needs. A limit
// that only LimitsFor returns has a check only if another limit has its algorithm and
// period.
//
// Rule names are those of this middleware. If another one on the same limiter has a
// rule of that name, algorithm and period, the two have one count.
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
	return countsOf(r.limits(keys)), nil
}

// named returns the rule of a name.
func (set *ruleset) named(name string) (*rule, error) {
	at, ok := set.find(name, 0)
	if !ok {
		return nil, fmt.Errorf("middleware: rule %.64q: %w", name, view.ErrNoRule)
	}
	return &set.rules[at], nil
}

// keysOf returns the keys that plain values stand for; at least one.
func (r *rule) keysOf(values []string) (keys []string, err error) {
	keys, err = keyfunc.Describe(r.key).Keys(values...)
	if err == nil && (len(keys) == 0 || slices.Contains(keys, "")) {
		err = errors.New("the value is empty")
	}
	if err != nil {
		return nil, fmt.Errorf("middleware: rule %q: key: %w", r.check.Rule, err)
	}
	return slices.Compact(slices.Sorted(slices.Values(keys))), nil
}

// limits returns those that the rule may have for requests of keys, with this
// middleware's share of them.
func (r *rule) limits(keys []string) (all []view.ClientLimit) {
	for _, l := range r.own.windows {
		all = append(all, view.ClientLimit{Limit: l, Checks: r.checksOf("", l, keys)})
	}
	for _, tier := range slices.Sorted(maps.Keys(r.terms.tiers)) {
		for _, l := range r.terms.tiers[tier].windows {
			all = append(all, view.ClientLimit{Tier: tier, Limit: l, Checks: r.checksOf(tier, l, keys)})
		}
	}
	for i, key := range keys {
		o := r.terms.overrides[key]
		if o == nil {
			continue
		}
		windows := o.windows
		if windows == nil {
			windows = Unlimited()
		}
		for _, l := range windows {
			all = append(all, view.ClientLimit{Override: o.String(), Limit: l, Checks: r.checksOf("", l, keys[i:i+1])})
		}
	}
	return all
}

// checksOf returns the checks of keys by one limit.
func (r *rule) checksOf(tier string, l algorithms.Limit, keys []string) []algorithms.Check {
	checks := make([]algorithms.Check, len(keys))
	for i, key := range keys {
		c := r.check
		c.Key, c.Tier, c.Shadow = key, r.tierOf(tier), r.terms.shadows(c.Rule, key)
		setLimit(&c, l)
		checks[i] = c
	}
	return checks
}

// countsOf returns a check for each count that limits of the rule have.
func countsOf(limits []view.ClientLimit) (checks []algorithms.Check) {
	seen := make(map[view.Count]bool)
	for _, l := range limits {
		for _, c := range l.Checks {
			if id := view.CountOf(&c); l.Limit != unlimited && !seen[id] {
				seen[id] = true
				checks = append(checks, c)
			}
		}
	}
	return checks
}
