package middleware

import (
	"reflect"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/hidden"
	"github.com/seed75154129/ratelimit/internal/hint"
	"github.com/seed75154129/ratelimit/internal/pattern"
	"github.com/seed75154129/ratelimit/internal/sampler"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// compile validates rules and makes them ready, with a share of each limit.
func compile(rules []Rule, s share) ([]rule, error) {
	if err := validate(rules, s); err != nil {
		return nil, err
	}
	compiled := make([]rule, len(rules))
	for i := range rules {
		r := &rules[i]
		c := &compiled[i]
		c.source = r.clone()
		ruleNames.Store(r.Name, true)
		c.patterns = r.patterns()
		c.readsBody, c.traits = keyfunc.Describe(r.Key).ReadsBody(), hint.Of(r.Key)
		if c.costs = pattern.NewValues(r.Costs); r.Shadow {
			c.shadow = 1 - r.Enforce
		}
		c.limits = limitsBy(&c.source, s)
		c.check = algorithms.Check{Rule: r.Name, Limit: c.own[0], Cost: max(r.Cost, 1), Fail: r.Fail, Shadow: c.shadow == 1,
			Sync: r.Sync, Provisional: len(r.ChargeOn) > 0}
		c.ban = r.Ban.terms(c.own)
	}
	reuseKeys(compiled)
	return compiled, nil
}

// maxReused is how many keys' answers a request keeps for further rules.
const maxReused = 2

// reuseKeys numbers the keys that several rules have. They are resolved once for each
// request. A [keyfunc.Func] cannot be compared, so it is called for each rule.
func reuseKeys(rules []rule) {
	reused := 0
	for i := range rules {
		if rules[i].reused > 0 || reflect.TypeOf(rules[i].source.Key).Kind() != reflect.Pointer {
			continue
		}
		if reused == maxReused {
			return
		}
		for j := i + 1; j < len(rules); j++ {
			if rules[j].source.Key == rules[i].source.Key {
				rules[i].reused, rules[j].reused = reused+1, reused+1
			}
		}
		reused = max(reused, rules[i].reused)
	}
}

// A ruleset is the rules in force, with their counts and hints.
type ruleset struct {
	rules      []rule
	watches    []watch         // one for each rule
	hidden     map[string]bool // by name
	chargesOn  bool            // a rule has ChargeOn
	bans       bool            // a rule has a Ban
	hints      *hints
	generation int   // 1 for the first
	version    int64 // of the document; 0 if it has none
}

// newRuleset returns the set that follows old, which has no rules the first time.
func newRuleset(rules []rule, old *ruleset, config *Config, s share) *ruleset {
	set := &ruleset{rules: rules, watches: make([]watch, len(rules)), hidden: make(map[string]bool), generation: old.generation + 1}
	set.hints = &hints{logger: config.Logger, use: make([]ruleUse, len(rules))}
	for i := range rules {
		c := &rules[i].check
		var windows []*windowDenials // of before
		w := watch{rule: c.Rule, limit: c.Limit, quota: c.Limit.Quota(), series: new(series), denials: new(sampler.Rate)}
		if at, ok := old.find(c.Rule, i); ok {
			was := &old.watches[at]
			w.denials = was.denials
			if algorithmOf(was.limit) == algorithmOf(w.limit) {
				w.series, windows = was.series, was.windows
			}
		}
		w.windows = windowsOf(&rules[i].source, windows)
		set.watches[i] = w
		if rules[i].source.ChargeOn != nil {
			set.chargesOn = true
			set.hints.listening.Add(1)
		}
		set.bans = set.bans || rules[i].source.Ban != (Ban{})
		if rules[i].source.Hidden {
			set.hidden[c.Rule] = true
		}
	}
	set.hints.start(rules, config, s)
	return set
}

// find returns the index of a rule, which is most likely at from or soon after.
func (set *ruleset) find(name string, from int) (at int, ok bool) {
	for i := from; i < len(set.watches); i++ {
		if set.watches[i].rule == name {
			return i, true
		}
	}
	for i := range min(from, len(set.watches)) {
		if set.watches[i].rule == name {
			return i, true
		}
	}
	return 0, false
}

// shown returns a decision without what clients must not be told.
func (set *ruleset) shown(d algorithms.Decision) algorithms.Decision {
	return hidden.Redact(d, func(rule string) bool { return set.hidden[rule] })
}

// seriesOf returns the counts of a rule. Those of a rule that the limiter has added are
// shown nowhere.
func (set *ruleset) seriesOf(rule string) *series {
	if at, ok := set.find(rule, 0); ok {
		return set.watches[at].series
	}
	return new(series)
}

// mayRefund reports whether a rule with ChargeOn has charged the request.
func (set *ruleset) mayRefund(d *algorithms.Decision) bool {
	if !set.chargesOn {
		return false
	}
	for i := range d.Results {
		if d.Results[i].Charged > 0 && set.chargeOn(d.Results[i].Check.Rule) != nil {
			return true
		}
	}
	return false
}

// chargeOn returns the statuses that a rule charges; nil means all.
func (set *ruleset) chargeOn(rule string) []int {
	if at, ok := set.find(rule, 0); ok {
		return set.rules[at].source.ChargeOn
	}
	return nil
}

// failed counts the checks of a call for which the limiter returned an error.
func (set *ruleset) failed(checks []algorithms.Check) {
	for i := range checks {
		if i == 0 || checks[i].Rule != checks[i-1].Rule { // else it is another window of it
			set.seriesOf(checks[i].Rule).counts[outcomeError][algorithms.SourceNone].Add(1)
		}
	}
}
