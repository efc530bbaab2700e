package middleware

import (
	"fmt"
	"strings"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/view"
)

// limitsOf are the limits of the request by a rule: Overrides, LimitsFor, Tiers, its own.
// It leaves no tier in the check but one that counts apart. Without windows, the rule does
// not apply.
func (e *evaluation) limitsOf(i int, rule *rule, check *algorithms.Check) limits {
	if rule.source.TierBy != nil {
		return e.limitsBy(rule, check)
	}
	if o := e.overrideOf(rule, check.Key); o != nil {
		return o.limits
	}
	if f := rule.source.LimitsFor; f != nil {
		if all := f(e.request); len(all) > 0 {
			fit, err := rule.source.fit(all, e.m.share)
			if err == nil {
				return fit
			}
			e.m.badLimits.Do(func() {
				e.m.config.Logger.Warn("ratelimit: LimitsFor returned limits that cannot be used; Tiers and Limit apply",
					"rule", rule.check.Rule, "limit", view.LimitsOf(all).String(), "error", err)
			})
		}
	}
	if rule.terms.tiers != nil {
		if tier := e.tier(); tier != "" {
			l, ok := rule.terms.tiers[tier]
			if e.seen != nil {
				e.seen[i].tier, e.seen[i].hasTier = tier, ok
			}
			if ok {
				return l
			}
			if !e.peeks {
				e.set.watches[i].series.unknownTiers.Add(1)
			}
		}
	}
	return rule.own
}

// overrideOf returns the override in force for a key; nil if there is none.
func (e *evaluation) overrideOf(rule *rule, key string) *override {
	o := rule.terms.overrides[key]
	if o == nil || !o.source.ended() {
		return o
	}
	o.said.Do(func() {
		e.m.config.Logger.Warn("ratelimit: an override has ended; the rule's other limits apply", "rule", rule.check.Rule, "override", o.name, "until", o.source.Until)
	})
	return nil
}

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

// tier asks for the request's tier, once.
func (e *evaluation) tier() string {
	if !e.tierKnown && e.m.config.TierFor != nil {
		e.tierName, e.tierKnown = e.m.config.TierFor(e.request), true
	}
	return e.tierName
}

// costOf is what the request costs by a rule: CostFor, Costs, Cost.
func (e *evaluation) costOf(rule *rule, windows []algorithms.Limit) int64 {
	if f := rule.source.CostFor; f != nil {
		if n := f(e.request); n > 0 {
			for i := range windows {
				if part, quota := rule.source.MaxReserve, windows[i].Quota(); part > 0 {
					n = min(n, max(int64(part*float64(quota)), 1))
				} else if n > quota && !windows[i].Soft {
					e.set.hints.sayOnce("cost of "+rule.check.Rule, fmt.Sprintf("rule %q: CostFor returned %d, and %s can hold %d units, so that such a request is always denied; "+
						"set MaxReserve, raise the limit, or return less", rule.check.Rule, n, windows[i], quota))
				}
			}
			return n
		}
	}
	if rule.terms.costs != nil {
		return rule.terms.costs.Of(&e.target, rule.check.Cost)
	}
	return rule.check.Cost
}
