package middleware

import (
	"fmt"
	"net/http"

	"github.com/seed75154129/ratelimit/algorithms"
)

// terms are what a rule asks of requests by more than one limit and one cost.
// The zero value asks nothing special.
type terms struct {
	limitFor func(*http.Request) algorithms.Limit
	tiers    map[string]limit
	costFor  func(*http.Request) int64
	costs    []cost // the most specific first
	chargeOn []int
	shadow   float64
}

// A limit is one that a rule may have, made ready for requests.
type limit struct {
	algorithms.Limit      // [Unlimited] exempts
	queue            bool // requests may have to wait
}

// plain reports whether every request has the rule's own limit and cost, and all
// keys are enforced.
func (t *terms) plain() bool {
	return t.limitFor == nil && t.tiers == nil && t.costFor == nil && t.costs == nil && t.shadow == 0
}

// agree completes a check by the terms of its rule. The rule does not apply where
// the request is exempt.
func (q *question) agree(i int, rule *rule, check *algorithms.Check) (queue, applies bool) {
	l := q.limitOf(i, rule)
	if l.Limit == Unlimited() {
		return false, false
	}
	check.Limit, check.Cost = l.Limit, q.costOf(rule)
	check.Shadow = rule.terms.shadows(check.Rule, check.Key)
	return l.queue && !check.Shadow, true // who is not enforced takes nobody's place
}

// limitOf is the limit of the request by a rule: LimitFor, Tiers, Limit.
func (q *question) limitOf(i int, rule *rule) limit {
	if f := rule.terms.limitFor; f != nil {
		if l := f(q.request); l != (algorithms.Limit{}) {
			fit, err := rule.fit(l, q.share)
			if err == nil {
				return fit
			}
			q.misfits.Do(func() {
				q.logger.Warn("ratelimit: LimitFor returned a limit that cannot be used; Tiers and Limit apply",
					"rule", rule.check.Rule, "limit", l.String(), "error", err)
			})
		}
	}
	if rule.terms.tiers != nil {
		if tier := q.tier(); tier != "" {
			l, ok := rule.terms.tiers[tier]
			if q.hints != nil {
				q.hints.tier(i, tier, ok)
			}
			if ok {
				return l
			}
			if !q.peeks {
				q.set.watches[i].series.unknownTiers.Add(1)
			}
		}
	}
	return limit{rule.check.Limit, rule.queue}
}

// fit makes a limit of the rule ready for requests.
func (r *rule) fit(l algorithms.Limit, s share) (limit, error) {
	if l == Unlimited() {
		return limit{Limit: l}, nil
	}
	if err := l.Validate(); err != nil {
		return limit{}, err
	}
	if err := r.source.fitsHeld(l); err != nil {
		return limit{}, err
	}
	if r.terms.chargeOn != nil && !isWindow(l) {
		return limit{}, fmt.Errorf("%s is no window, which ChargeOn needs", l)
	}
	if r.source.Lease && !grantsBlocks(l) {
		return limit{}, fmt.Errorf("%s grants no blocks, which Lease needs", l)
	}
	l, err := s.limit(l)
	return limit{l, l.Algorithm == algorithms.LeakyBucket}, err
}

// tier asks for the request's tier, once.
func (q *question) tier() string {
	if !q.tierKnown && q.tierFor != nil {
		q.tierName, q.tierKnown = q.tierFor(q.request), true
	}
	return q.tierName
}

// costOf is what the request costs by a rule: CostFor, Costs, Cost.
func (q *question) costOf(rule *rule) int64 {
	if f := rule.terms.costFor; f != nil {
		if n := f(q.request); n > 0 {
			return n
		}
	}
	if rule.terms.costs != nil {
		return costAt(rule.terms.costs, &q.target, rule.check.Cost)
	}
	return rule.check.Cost
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

// largestCost is the largest that is known before there are requests.
func (r *Rule) largestCost() int64 {
	most := max(r.Cost, 1)
	for _, units := range r.Costs {
		most = max(most, units)
	}
	return most
}
