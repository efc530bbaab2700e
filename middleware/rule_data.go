package middleware

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/pattern"
	"github.com/seed75154129/ratelimit/internal/view"
	"github.com/seed75154129/ratelimit/keyfunc"
)

const (
	// maxEntries is how many entries Rule.Match, Costs, Tiers and Overrides may have: patterns
	// are compared with each other, and costs with the limits of tiers.
	maxEntries = 1000
	// maxConflicts is how many conflicts among the patterns of Costs are looked for.
	maxConflicts = 10
)

// maxRules is how many rules there may be: a request is compared with each.
const maxRules = 1000

// ValidateRules reports every mistake, each a [*RuleError], joined.
func ValidateRules(rules []Rule) error {
	if len(rules) == 0 {
		return &RuleError{Index: -1, Err: errors.New("at least one is required")}
	}
	if len(rules) > maxRules {
		return &RuleError{Index: maxRules, Rule: rules[maxRules].Name, Err: fmt.Errorf("%d rules; at most %d", len(rules), maxRules)}
	}
	var errs []error
	named := make(map[string]int, len(rules))
	for i := range rules {
		r := &rules[i]
		bad := func(field string, err error) {
			for _, err := range view.Each(err) {
				errs = append(errs, &RuleError{i, r.Name, field, err})
			}
		}
		bad("Name", validateName(r.Name))
		if first, taken := named[r.Name]; taken && r.Name != "" {
			bad("Name", fmt.Errorf("rules[%d] and rules[%d] have the same; counts would be shared", first, i))
		} else {
			named[r.Name] = i
		}
		match := r.validateMatch(bad)
		bad("Key", validateKey(r.Key))
		r.validateOwn(bad)
		r.validateData(match, bad)
		_, err := r.Fail.MarshalText()
		bad("Fail", err)
	}
	return errors.Join(errs...)
}

// validateOwn reports what is wrong with Limit and Limits.
func (r *Rule) validateOwn(bad func(string, error)) {
	field := "Limit"
	if r.Limits != nil {
		field = "Limits"
		if r.Limit != (algorithms.Limit{}) {
			bad(field, errors.New("set beside Limit; set one of the two"))
		}
	}
	bad(field, validateLimits(r.own()))
}

// maxWindows is how many windows a request may have by one rule.
const maxWindows = 8

// validateLimits reports what is wrong with the limits that a request has together.
func validateLimits(limits []algorithms.Limit) error {
	if len(limits) == 0 || len(limits) > maxWindows {
		return fmt.Errorf("%d limits; write 1 to %d", len(limits), maxWindows)
	}
	var errs []error
	for i, l := range limits {
		errs = append(errs, cmp.Or(l.Validate(), periodTooShort(l)))
		if isHeld(l) && len(limits) > 1 {
			errs = append(errs, fmt.Errorf("%s counts requests, and other limits may count units; write two rules", l))
		}
		for _, other := range limits[:i] {
			if lent.Counting(other) == lent.Counting(l) {
				errs = append(errs, fmt.Errorf("%s and %s are one count; keep one of them, or write another period", other, l))
			}
		}
	}
	return errors.Join(errs...)
}

func validateName(name string) error {
	if name == "" {
		return errors.New("required")
	}
	if len(name) > 64 {
		return fmt.Errorf("%d bytes; at most 64", len(name))
	}
	for _, c := range name {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return fmt.Errorf("%q in %q; use letters, digits, '-', '_' and '.'", c, name)
		}
	}
	return nil
}

func validateKey(key keyfunc.Key) error {
	if f, ok := key.(keyfunc.Func); key == nil || ok && f == nil {
		return errors.New("required; use keyfunc.IP to limit each address, keyfunc.Everyone to limit all together")
	}
	return keyfunc.Describe(key).Validate()
}

// validateData reports what is wrong with the fields that go with Match and Limit:
// tiers, overrides, costs, charging by response, bans, shadow and leases. It is given the
// patterns of the rule; nil if it has none, or bad ones.
func (r *Rule) validateData(match []pattern.Pattern, bad func(field string, err error)) {
	few := *r
	if len(r.Tiers) > maxEntries {
		bad("Tiers", fmt.Errorf("%d tiers; at most %d", len(r.Tiers), maxEntries))
		few.Tiers = nil
	}
	if len(r.Overrides) > maxEntries {
		bad("Overrides", fmt.Errorf("%d overrides; at most %d: give many clients a tier by Config.TierFor", len(r.Overrides), maxEntries))
		few.Overrides = nil
	}
	r = &few
	r.validateTierNames(bad)
	r.validateTierBy(bad)
	r.validateOverrides(bad)
	for by, limits := range r.sets() {
		for _, err := range view.Each(validateLimits(limits)) {
			if by != (holder{}) {
				bad(by.field(r), by.wrap(err))
			}
		}
	}
	limits := slices.DeleteFunc(r.limits(), func(l ruleLimit) bool { return l.Validate() != nil })

	if r.Cost < 0 {
		bad("Cost", fmt.Errorf("must not be negative, got %d", r.Cost))
	}
	bad("Cost", tooMuch(r.Cost, limits))
	r.validateCosts(match, limits, bad)
	if !(r.MaxReserve >= 0 && r.MaxReserve <= 1) { // NaN is neither
		bad("MaxReserve", fmt.Errorf("must be 0 to 1, a part of what the limit can hold; got %v", r.MaxReserve))
	}
	if r.hasHeld() {
		r.validateHeld(bad)
	} else {
		r.validateChargeOn(limits, bad)
		r.validateLease(limits, bad)
	}
	r.validateBan(bad)
	if !(r.Enforce >= 0 && r.Enforce <= 1) { // NaN is neither
		bad("Enforce", fmt.Errorf("must be 0 to 1, the fraction of keys that are limited; got %v", r.Enforce))
	} else if r.Enforce > 0 && !r.Shadow {
		bad("Enforce", errors.New("needs shadow: without it the rule is enforced for all keys; write shadow: true, or leave enforce out"))
	}
}

func (r *Rule) validateBan(bad func(string, error)) {
	if r.Ban == (algorithms.Ban{}) {
		return
	}
	invalid := view.Each(r.Ban.Validate())
	for _, err := range invalid {
		bad("Ban", err)
	}
	if len(invalid) == 0 {
		bad("Ban", tooShort("for:", r.Ban.For))
		bad("Ban", tooShort("within:", cmp.Or(r.Ban.Within, shortest)))
	}
	for by, limits := range r.sets() {
		err := banBy(r.Ban, limits)
		if err != nil && by != (holder{}) {
			err = fmt.Errorf("by %s: %w", by, err)
		}
		bad("Ban", err)
	}
	if r.Key != nil && keyfunc.Describe(r.Key).Values() == 0 {
		bad("Ban", errors.New("all clients have one key, so each of them could have all others denied: "+
			"ban by another key, such as keyfunc.IP, or leave the ban out"))
	}
}

// leadsToBan reports whether denials by a limit may lead to a ban.
func leadsToBan(l algorithms.Limit) bool { return l.Calendar == "" && !l.Soft }

// banBy reports why denials by limits cannot lead to a ban.
func banBy(b algorithms.Ban, limits []algorithms.Limit) error {
	switch {
	case b == (algorithms.Ban{}):
	case !slices.ContainsFunc(limits, func(l algorithms.Limit) bool { return !l.Soft }):
		return errors.New("soft limits deny nothing that could lead to a ban; add a limit that is not soft, or leave the ban out")
	case !slices.ContainsFunc(limits, leadsToBan):
		return errors.New("denials by calendar windows lead to no ban, since a client that has used up its quota is no attacker; add a limit with a short period, or leave the ban out")
	case len(limits) > 1 && b.Within == 0:
		return errors.New("needs within, since the periods of several limits differ")
	}
	return nil
}

// shortest is the shortest time that a rule may count by. Anything below is shorter
// than a decision may take, and mostly a number whose unit was forgotten.
const shortest = 10 * time.Millisecond

func periodTooShort(l algorithms.Limit) error {
	if l.Calendar != "" {
		return nil
	}
	return tooShort("the period", l.Period)
}

func tooShort(what string, d time.Duration) error {
	if d >= shortest {
		return nil
	}
	return fmt.Errorf("%s %s is below %s, which limits nobody; a number without a unit is in nanoseconds: write 10*time.Second, in text 10s",
		what, d, shortest)
}

// validateMatch returns the patterns; nil if there are none, or bad ones.
func (r *Rule) validateMatch(bad func(string, error)) (match []pattern.Pattern) {
	if len(r.Match) > maxEntries {
		bad("Match", fmt.Errorf("%d patterns; at most %d", len(r.Match), maxEntries))
		return nil
	}
	good := true
	for _, text := range r.Match {
		p, err := pattern.Parse(text)
		bad("Match", err)
		match, good = append(match, p), good && err == nil
	}
	if !good {
		return nil
	}
	return match
}

// validateTierNames refuses names that look like another one and are none.
func (r *Rule) validateTierNames(bad func(string, error)) {
	lower := make(map[string]string, len(r.Tiers))
	for _, tier := range slices.Sorted(maps.Keys(r.Tiers)) {
		other, taken := lower[strings.ToLower(tier)]
		lower[strings.ToLower(tier)] = tier
		switch {
		case tier == "":
			bad("Tiers", errors.New(`a tier needs a name: "" is the tier of requests that have none`))
		case tier != strings.TrimSpace(tier):
			bad("Tiers", fmt.Errorf("tier %q: there is white space around it; write %q", tier, strings.TrimSpace(tier)))
		case strings.ContainsFunc(tier, pattern.Invisible):
			bad("Tiers", fmt.Errorf("tier %q: there is a character in it that is not visible; remove it", tier))
		case taken:
			bad("Tiers", fmt.Errorf("tier %q: differs from %q only in case; keep the one that Config.TierFor returns", tier, other))
		}
	}
}

// validateTierBy reports what is wrong with TierBy and what does not go with it.
func (r *Rule) validateTierBy(bad func(string, error)) {
	if r.TierBy == nil {
		return
	}
	for _, err := range view.Each(validateKey(r.TierBy)) {
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

// tooMuch is what is wrong with a cost that one of the limits can never hold.
func tooMuch(cost int64, limits []ruleLimit) error {
	for _, l := range limits {
		if cost > l.Quota() && !l.Soft {
			return fmt.Errorf("%d is above the %d units that %s can hold: no request would pass", cost, l.Quota(), l)
		}
	}
	return nil
}

func (r *Rule) validateCosts(match []pattern.Pattern, limits []ruleLimit, bad func(string, error)) {
	if len(r.Costs) > maxEntries {
		bad("Costs", fmt.Errorf("%d patterns; at most %d", len(r.Costs), maxEntries))
		return
	}
	mux, conflicts := http.NewServeMux(), 0
	for _, text := range slices.Sorted(maps.Keys(r.Costs)) {
		p, err := pattern.Parse(text)
		if err == nil && conflicts < maxConflicts {
			if err = pattern.Conflict(mux, text); err != nil {
				conflicts++
			}
		}
		if err == nil && match != nil && !slices.ContainsFunc(match, func(m pattern.Pattern) bool { return m.Meets(&p) }) {
			err = fmt.Errorf("pattern %q: the rule matches no such request, so the cost would never apply; let the rule match it, or leave the cost out", text)
		}
		bad("Costs", err)
		if cost := r.Costs[text]; cost < 1 {
			bad("Costs", fmt.Errorf("pattern %q: must cost at least 1, got %d", text, cost))
		} else if err := tooMuch(cost, limits); err != nil {
			bad("Costs", fmt.Errorf("pattern %q: %w", text, err))
		}
	}
}

func (r *Rule) validateChargeOn(limits []ruleLimit, bad func(string, error)) {
	if r.ChargeOn == nil {
		return
	}
	if len(r.ChargeOn) == 0 {
		bad("ChargeOn", errors.New("empty: every response would be given back; leave it nil to charge all"))
	}
	for i, status := range r.ChargeOn {
		if status < 200 || status > 599 {
			bad("ChargeOn", fmt.Errorf("status %d: must be 200 to 599", status))
		} else if slices.Contains(r.ChargeOn[:i], status) {
			bad("ChargeOn", fmt.Errorf("status %d: listed twice", status))
		}
	}
	for _, l := range limits {
		if !isWindow(l.Limit) {
			bad("ChargeOn", fmt.Errorf("needs a window, from which all can be given back, and %s is none; use %s, %s or %s",
				l, algorithms.FixedWindow, algorithms.SlidingWindow, algorithms.SlidingLog))
		}
	}
}

func (r *Rule) validateLease(limits []ruleLimit, bad func(string, error)) {
	if !r.Lease {
		return
	}
	for _, l := range limits {
		if l.Soft {
			bad("Lease", fmt.Errorf("does not go with %s, which is soft, and counts each request; leave one of them out", l))
		} else if !grantsBlocks(l.Limit) {
			bad("Lease", fmt.Errorf("units can be taken in blocks only by %s and %s, and %s is neither; leave the lease out",
				algorithms.FixedWindow, algorithms.SlidingWindow, l))
		}
	}
	for _, limits := range r.sets() {
		if len(limits) > 1 {
			bad("Lease", errors.New("does not go with several limits, which have room together; lease by a rule of its own"))
			break
		}
	}
	if r.ChargeOn != nil {
		bad("Lease", errors.New("does not go with charging by response: units of a block are not given back one by one; leave one of them out"))
	}
	if r.Ban != (algorithms.Ban{}) {
		bad("Lease", errors.New("does not go with a ban: who is denied inside a block is not counted in Redis; leave one of them out"))
	}
}

// validate reports the limits of valid rules whose share cannot hold the largest
// cost. Rounding them up would admit more than the limit in all regions together.
func (s share) validate(rules []Rule) (errs []error) {
	if s.part == nil {
		return nil
	}
	for i := range rules {
		r := &rules[i]
		for _, l := range r.limits() {
			if err := s.holds(l.Limit, r.largestCost()); err != nil {
				errs = append(errs, &RuleError{i, r.Name, l.field(r), l.wrap(err)})
			}
		}
	}
	return errs
}

func (s share) holds(l algorithms.Limit, cost int64) error {
	part, err := s.limit(l)
	if err == nil && part.Quota() < cost && !l.Soft {
		err = fmt.Errorf("the share %s of %s holds %d units, and a request costs up to %d: it would never pass", s.text, l, part.Quota(), cost)
	}
	if err != nil {
		return fmt.Errorf("%w; raise the limit or Config.Share", err)
	}
	return nil
}
