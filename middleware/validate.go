package middleware

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/pattern"
	"github.com/seed75154129/ratelimit/internal/view"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// A RuleError is a mistake in one field of one rule.
type RuleError struct {
	Index       int    // of the rule; -1 if the list of rules is empty
	Rule, Field string // the rule's name; the field's name in Go
	Err         error  // what is wrong, and what to write
}

// Error names the rule and the field.
func (e *RuleError) Error() string {
	where := fmt.Sprintf("rule %q", e.Rule)
	switch {
	case e.Index < 0:
		where = "rules"
	case e.Rule == "":
		where = fmt.Sprintf("rules[%d]", e.Index)
	}
	if e.Field != "" {
		where += ": " + strings.ReplaceAll(view.Snake(e.Field), "_", " ")
	}
	return fmt.Sprintf("middleware: %s: %v", where, e.Err)
}

// Unwrap returns Err.
func (e *RuleError) Unwrap() error { return e.Err }

// maxRules is how many rules there may be: a request is compared with each.
const maxRules = 1000

// maxPatterns is how many patterns all rules may have together, for the same reason.
const maxPatterns = 10_000

// ValidateRules returns all mistakes, each a [*RuleError], joined.
func ValidateRules(rules []Rule) error {
	if len(rules) == 0 {
		return &RuleError{Index: -1, Err: errors.New("at least one is required")}
	}
	if len(rules) > maxRules {
		return &RuleError{Index: maxRules, Rule: rules[maxRules].Name, Err: fmt.Errorf("%d rules; at most %d", len(rules), maxRules)}
	}
	patterns := 0
	for i := range rules {
		if patterns += len(rules[i].Match) + len(rules[i].Costs); patterns > maxPatterns {
			return &RuleError{Index: i, Rule: rules[i].Name, Err: fmt.Errorf("with this rule there are %d patterns; at most %d in all rules", patterns, maxPatterns)}
		}
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
		if r.Limits != nil && r.Limit != (algorithms.Limit{}) {
			bad("Limits", errors.New("set beside Limit; set one of the two"))
		}
		r.validateData(match, bad)
		_, err := r.Fail.MarshalText()
		bad("Fail", err)
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
	r.validateOverrides(bad)
	for by, limits := range r.sets() {
		for _, err := range view.Each(validateLimits(limits)) {
			bad(by.field(r), by.wrap(err))
		}
	}
	limits := slices.DeleteFunc(r.limits(), func(l ruleLimit) bool { return l.Validate() != nil })

	if r.Cost < 0 {
		bad("Cost", fmt.Errorf("must not be negative, got %d", r.Cost))
	}
	for _, err := range tooMuch(r.Cost, limits) {
		bad("Cost", err)
	}
	r.validateCosts(match, limits, bad)
	if r.hasHeld() {
		r.validateHeld(bad)
	} else {
		r.validateChargeOn(limits, bad)
		r.validateLease(limits, bad)
	}
	r.validateBan(bad)
	r.validateRetryAfter(bad)
	if !(r.Enforce >= 0 && r.Enforce <= 1) { // NaN is neither
		bad("Enforce", fmt.Errorf("must be 0 to 1, the fraction of keys that are limited; got %v", r.Enforce))
	} else if r.Enforce > 0 && !r.Shadow {
		bad("Enforce", errors.New("needs shadow: without it the rule is enforced for all keys; write shadow: true, or leave enforce out"))
	}
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

// validateOverrides reports what is wrong with overrides, but for their limits.
func (r *Rule) validateOverrides(bad func(string, error)) {
	if validateKey(r.Key) != nil {
		return // it is reported
	}
	first := make(map[string]int, len(r.Overrides))
	for i := range r.Overrides {
		key, err := keyOfOverride(r.Key, r.Overrides[i].Client)
		other, taken := first[key]
		if strings.ContainsFunc(r.Overrides[i].Note, pattern.Invisible) {
			bad("Overrides", fmt.Errorf("[%d]: note: there is a character in it that is not visible; remove it", i))
		}
		for _, value := range r.Overrides[i].Client { // which may be a secret
			switch {
			case strings.ContainsFunc(value, pattern.Invisible):
				err = errors.New("there is a character in it that is not visible; remove it")
			case value != strings.TrimSpace(value):
				err = errors.New("there is white space around it; remove it")
			case value == "*":
				err = errors.New("an override is for one client, and * stands for itself; for all others write the rule's limit")
			}
		}
		switch {
		case err != nil:
			bad("Overrides", fmt.Errorf("[%d]: client: %w", i, err))
		case taken:
			bad("Overrides", fmt.Errorf("[%d]: client: the same as of overrides[%d]: keep one of them", i, other))
		default:
			first[key] = i
		}
	}
}

// validate reports the limits of valid rules whose share cannot hold the largest
// cost. Rounding them up would admit more than the limit in all regions together.
func (s share) validate(rules []Rule) (errs []error) {
	for i := range rules {
		r := &rules[i]
		cost := r.largestCost()
		for _, l := range r.limits() {
			part, err := s.limit(l.Limit)
			if err == nil && part.Quota() < cost {
				err = fmt.Errorf("the share %s of %s holds %d units, and a request costs up to %d: it would never pass", s.text, l.Limit, part.Quota(), cost)
			}
			if err != nil {
				err = l.wrap(fmt.Errorf("%w; raise the limit or Config.Share", err))
				errs = append(errs, &RuleError{i, r.Name, l.field(r), err})
			}
		}
	}
	return errs
}

// largestCost returns the largest cost that is known before there are requests.
func (r *Rule) largestCost() int64 {
	most := max(r.Cost, 1)
	for _, units := range r.Costs {
		most = max(most, units)
	}
	return most
}
