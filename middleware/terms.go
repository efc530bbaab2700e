package middleware

import (
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/pattern"
	"github.com/seed75154129/ratelimit/internal/view"
)

// terms are what a rule asks of requests by more than one limit and one cost, made ready
// for requests. The zero value asks nothing special.
type terms struct {
	tiers     map[string]limits
	overrides map[string]*override // by key
	costs     pattern.Values
	shadow    float64 // the fraction of keys that are not enforced
}

// limits are those that a request has by a rule, made ready for requests.
type limits struct {
	windows []algorithms.Limit // none exempts
	queue   bool               // requests may have to wait
}

// isPlain reports whether every request has the rule's own limit and cost, and all
// keys are enforced.
func (r *rule) isPlain() bool {
	t := &r.terms
	return r.source.LimitsFor == nil && t.tiers == nil && t.overrides == nil && r.source.CostFor == nil && t.costs == nil && t.shadow == 0
}

// fit makes limits of the rule ready for requests. LimitsFor may return some that do not
// fit.
func (r *Rule) fit(all []algorithms.Limit, s share) (limits, error) {
	if exempts(all) {
		return limits{}, nil
	}
	if err := validateLimits(all); err != nil {
		return limits{}, err
	}
	if r.Lease && len(all) > 1 {
		return limits{}, errors.New("several limits, which Lease does not allow")
	}
	if err := banBy(r.Ban, all); err != nil {
		return limits{}, err
	}
	fit := limits{windows: all}
	if s.part != nil {
		fit.windows = slices.Clone(all)
	}
	for i, l := range all {
		if isHeld(l) && (r.Cost > 1 || r.Costs != nil || r.CostFor != nil || r.Ban != (algorithms.Ban{})) {
			return limits{}, fmt.Errorf("%s does not go with the rule's Cost, Costs, CostFor or Ban", l)
		}
		if r.ChargeOn != nil && !isWindow(l) {
			return limits{}, fmt.Errorf("%s is no window, which ChargeOn needs", l)
		}
		if r.Lease && !grantsBlocks(l) {
			return limits{}, fmt.Errorf("%s grants no blocks, which Lease needs", l)
		}
		fit.queue = fit.queue || l.Algorithm == algorithms.LeakyBucket
		if s.part != nil {
			var err error
			if fit.windows[i], err = s.limit(l); err != nil {
				return limits{}, err
			}
		}
	}
	return fit, nil
}

// applyTerms completes a check by the terms of its rule, but for its limit. Without
// windows, the rule does not apply.
func (e *evaluation) applyTerms(i int, rule *rule, check *algorithms.Check) limits {
	l := e.limitsOf(i, rule, check)
	if l.windows == nil {
		return l
	}
	check.Cost = e.costOf(rule, l.windows)
	check.Shadow = rule.terms.shadows(check.Rule, check.Key)
	l.queue = l.queue && !check.Shadow // a request in shadow takes no place in the wait queue
	return l
}

// limitsOf are the limits of the request by a rule: Overrides, LimitsFor, Tiers, its own.
// It leaves no tier in the check but one that counts apart.
func (e *evaluation) limitsOf(i int, rule *rule, check *algorithms.Check) limits {
	if rule.tierBy != nil {
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
				e.m.logger.Warn("ratelimit: LimitsFor returned limits that cannot be used; Tiers and Limit apply",
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

// tier asks for the request's tier, once.
func (e *evaluation) tier() string {
	if !e.tierKnown && e.m.tierFor != nil {
		e.tierName, e.tierKnown = e.m.tierFor(e.request), true
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

// shadowed is the fraction of keys for which the rule is not enforced.
func (r *Rule) shadowed() float64 {
	if !r.Shadow {
		return 0
	}
	return 1 - r.Enforce
}

// shadows reports whether a key is one of those that are not enforced. Every
// instance has the same ones, and a smaller fraction has a part of them.
func (t *terms) shadows(rule, key string) bool {
	if t.shadow == 0 || t.shadow == 1 {
		return t.shadow == 1
	}
	return float64(hash(rule, key)>>11)*0x1p-53 < t.shadow
}

// hash is FNV-1a of the rule, a byte that no name has, and the key, mixed as
// MurmurHash3 does, since FNV leaves its upper bits much alike for similar keys.
func hash(rule, key string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(rule) {
		h = (h ^ uint64(rule[i])) * 1099511628211
	}
	h *= 1099511628211 // the byte is 0
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * 1099511628211
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// A share is a part of each limit, as the decimal fraction that the program has
// written: floating-point numbers would make 28 of 100 × 0.29. The zero value is
// all of it.
type share struct {
	part *big.Rat
	text string
}

// parseShare reads Config.Share.
func parseShare(f float64) (share, error) {
	if f == 0 || f == 1 {
		return share{}, nil
	}
	if !(f > 0 && f < 1) { // NaN is neither
		return share{}, fmt.Errorf("middleware: share: must be above 0 and at most 1, this region's part of each limit; got %v", f)
	}
	text := strconv.FormatFloat(f, 'f', -1, 64)
	part, _ := new(big.Rat).SetString(text) // it is a number
	return share{part, text}, nil
}

// units is the share of so many, rounded down.
func (s share) units(n int64) int64 {
	all := new(big.Rat).Mul(s.part, new(big.Rat).SetInt64(n))
	return new(big.Int).Quo(all.Num(), all.Denom()).Int64()
}

// limit is the share of a valid limit. The error says that it is too small.
func (s share) limit(l algorithms.Limit) (algorithms.Limit, error) {
	if s.part == nil {
		return l, nil
	}
	part := l
	part.Rate, part.Burst = s.units(l.Rate), s.units(l.Burst)
	if part.Rate < 1 || l.Burst > 0 && part.Burst < 1 {
		return part, fmt.Errorf("the share %s of %s is less than one unit", s.text, l)
	}
	if err := part.Validate(); err != nil {
		return part, fmt.Errorf("the share %s of %s: %w", s.text, l, err)
	}
	return part, nil
}
