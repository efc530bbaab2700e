package middleware

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// limitsBy are the limits of a request by a rule with a TierBy, whose answer is the
// check's tier. A tier that is not listed is none, so that clients which make up names
// gain no count.
func (e *evaluation) limitsBy(rule *rule, check *algorithms.Check) limits {
	asked := check.Tier
	if check.Tier = ""; asked == "" {
		return rule.own
	}
	l, listed := limits{}, false
	if rule.plans {
		// Neither a plan nor what clients ask for may spell another pair by a slash.
		if plan := e.tier(); plan != "" && !strings.Contains(plan, "/") {
			l, listed = rule.terms.tiers[plan+"/"+asked]
		}
	}
	if !listed && (!rule.plans || !strings.Contains(asked, "/")) {
		l, listed = rule.terms.tiers[asked]
	}
	if !listed {
		return rule.own
	}
	check.Tier = asked
	return l
}

// tierOf returns the tier of the count that a tier of the rule has.
func (r *rule) tierOf(tier string) string {
	switch plan, asked, paired := strings.Cut(tier, "/"); {
	case r.tierBy == nil:
		return ""
	case r.plans && paired && plan != "" && asked != "":
		return asked
	}
	return tier
}

// asked returns the tiers that count apart, by name.
func (r *rule) asked() []string {
	all := make(map[string]bool)
	for tier := range r.terms.tiers {
		all[r.tierOf(tier)] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// tierName names a TierBy; "" is none.
func tierName(tierBy keyfunc.Key) string {
	if tierBy == nil {
		return ""
	}
	return keyfunc.Describe(tierBy).String()
}

// validateTierBy reports what is wrong with TierBy and what does not go with it.
func (r *Rule) validateTierBy(bad func(string, error)) {
	if r.TierBy == nil {
		return
	}
	for _, err := range each(validateKey(r.TierBy)) {
		bad("TierBy", err)
	}
	if len(r.Tiers) == 0 {
		bad("TierBy", errors.New("needs tiers: each is what may be asked for, and its limit"))
	}
	if r.LimitsFor != nil {
		bad("TierBy", errors.New("does not go with LimitsFor, which does not say in which tier's count its limits are; list the limits in Tiers"))
	}
	if len(r.Overrides) > 0 {
		bad("Overrides", errors.New("an override does not say for which tier of TierBy it is; have Config.TierFor name the client's tier, such as acme, and write the tier \"acme/large\""))
	}
}
