package middleware

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// Checks returns the checks by which a rule counts a client, for the limiter's
// Peek, Reset and Ban. The client is named in plain values, one for each part of
// the rule's Key: "2001:db8::1" is counted as "2001:db8::/64", and an API key by
// its hash. [keyfunc.Everyone] takes no value. A Key without the method Keys takes
// one value, which is the key.
//
// There is a check for each algorithm, period and tier of TierBy among Limit, Limits,
// Tiers and the client's Override, because each has a count of its own. Of several limits
// on one count the first is in the check: the rule's own, then Tiers by name, then the
// Override. A Key may have several keys for the values, as [keyfunc.First] does. A limit
// that only LimitsFor returns is not among the checks, unless its algorithm and period
// are.
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
	return r.checks(keys), nil
}

var errNoRule = errors.New("no such rule")

// named returns the rule of a name.
func (set *ruleset) named(name string) (*rule, error) {
	at, ok := set.find(name, 0)
	if !ok {
		return nil, fmt.Errorf("middleware: rule %.64q: %w", name, errNoRule)
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

// limits returns those that the rule may have for a request of any client, with this
// middleware's share of them.
func (r *rule) limits() (all []ruleLimit) {
	for _, l := range r.own.windows {
		all = append(all, ruleLimit{holder{}, l})
	}
	for _, tier := range slices.Sorted(maps.Keys(r.terms.tiers)) {
		for _, l := range r.terms.tiers[tier].windows {
			all = append(all, ruleLimit{holder{tier: tier}, l})
		}
	}
	return all
}

// checksOf returns the checks of keys by one limit.
func (r *rule) checksOf(l ruleLimit, keys []string) []algorithms.Check {
	checks := make([]algorithms.Check, len(keys))
	for i, key := range keys {
		c := r.check
		c.Key, c.Tier, c.Shadow = key, r.tierOf(l.tier), r.terms.shadows(c.Rule, key)
		setLimit(&c, l.Limit)
		checks[i] = c
	}
	return checks
}

// checks returns a check for each count of the keys.
func (r *rule) checks(keys []string) (checks []algorithms.Check) {
	type count struct {
		tier string
		window
	}
	seen := make(map[count]bool)
	for _, l := range r.limits() {
		if c := (count{r.tierOf(l.tier), windowOf(l.Limit)}); !seen[c] {
			seen[c] = true
			checks = append(checks, r.checksOf(l, keys)...)
		}
	}
	for _, key := range keys {
		if o := r.terms.overrides[key]; o != nil {
			for _, l := range o.windows {
				if !seen[count{"", windowOf(l)}] {
					checks = append(checks, r.checksOf(ruleLimit{Limit: l}, []string{key})...)
				}
			}
		}
	}
	return checks
}
