package middleware

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/hint"
	"github.com/seed75154129/ratelimit/internal/view"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// limits are those that requests may have by a rule, made ready for requests: one set
// of windows each. nil exempts.
type limits struct {
	own       []algorithms.Limit
	tiers     map[string][]algorithms.Limit
	overrides map[string]*override // by key
}

// limitsOf are the limits of the request by a rule: those of the override of its key, those
// that LimitsFor returns, those of its tier, or the rule's own. nil exempts it. The override
// comes first, since it is an operator's, such as against a client that harms others.
func (e *evaluation) limitsOf(i int, key string) []algorithms.Limit {
	rule := &e.set.rules[i]
	if o := rule.overrides[key]; o != nil {
		if !o.source.ended() {
			return o.windows
		}
		o.said.Do(func() {
			e.m.config.Logger.Warn("ratelimit: an override has ended; the rule's other limits apply", "rule", rule.check.Rule, "override", o.name, "until", o.source.Until)
		})
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
	if rule.tiers == nil {
		return rule.own
	}
	tier := e.tier()
	windows, ok := rule.tiers[tier]
	if !ok {
		windows = rule.own
	}
	if !ok && tier != "" && !e.peeks {
		e.set.watches[i].series.unknownTiers.Add(1)
		e.set.hints.tierIsUnknown(i, rule, tier)
	}
	return windows
}

// tier asks for the request's tier, once.
func (e *evaluation) tier() string {
	if !e.tierKnown && e.m.config.TierFor != nil {
		e.tierName, e.tierKnown = e.m.config.TierFor(e.request), true
	}
	return e.tierName
}

// mayHave returns the limits that requests of keys may have by the rule, for operators, with
// this middleware's share of them.
func (r *rule) mayHave(keys []string) (all []view.ClientLimit) {
	for _, l := range r.own {
		all = append(all, view.ClientLimit{Limit: l, Checks: r.checksOf(l, keys)})
	}
	for _, tier := range slices.Sorted(maps.Keys(r.tiers)) {
		for _, l := range r.tiers[tier] {
			all = append(all, view.ClientLimit{Tier: tier, Limit: l, Checks: r.checksOf(l, keys)})
		}
	}
	for i, key := range keys {
		o := r.overrides[key]
		if o == nil {
			continue
		}
		windows := o.windows
		if windows == nil {
			windows = Unlimited()
		}
		for _, l := range windows {
			all = append(all, view.ClientLimit{Override: o.String(), Ended: o.source.ended(), Limit: l, Checks: r.checksOf(l, keys[i:i+1])})
		}
	}
	return all
}

// limitsBy makes all limits of a valid rule ready for requests.
func limitsBy(r *Rule, s share) (l limits) {
	l.own, _ = r.fit(r.own(), s)
	if len(r.Tiers) > 0 {
		l.tiers = make(map[string][]algorithms.Limit, len(r.Tiers))
	}
	for tier, all := range r.Tiers {
		l.tiers[tier], _ = r.fit(all, s)
	}
	l.overrides = make(map[string]*override, len(r.Overrides))
	for i := range r.Overrides {
		o := &r.Overrides[i]
		key, _ := keyOfOverride(r.Key, o.Client)
		fit, _ := r.fit(o.Limits, s)
		l.overrides[key] = &override{windows: fit, source: o, name: nameOfOverride(i, o)}
	}
	return l
}

// fit makes limits of the rule ready for requests. LimitsFor may return some that do not
// fit.
func (r *Rule) fit(all []algorithms.Limit, s share) ([]algorithms.Limit, error) {
	if exempts(all) {
		return nil, nil
	}
	set, f := &limitSet{all: all, valid: all}, &found{share: s}
	for i := range table {
		if row := &table[i]; row.limits != nil && !row.warn && row.concerns(r) {
			f.field = cmp.Or(row.field, "LimitsFor")
			if row.limits(r, set, f); f.all != nil {
				f.all[0].Rule = r.Name
				return nil, f.all[0]
			}
		}
	}
	if s.part == nil {
		return all, nil
	}
	fit := make([]algorithms.Limit, len(all))
	for i, l := range all {
		fit[i], _ = s.limit(l) // it is large enough
	}
	return fit, nil
}

// An override is an Override made ready for requests.
type override struct {
	windows []algorithms.Limit
	source  *Override
	name    string    // for logs
	said    sync.Once // that it has ended
}

// String says of which client's limits it is, for operators.
func (o *override) String() string {
	if o.source.Until.IsZero() {
		return o.name
	}
	is := "until"
	if o.source.ended() {
		is = "ended"
	}
	return fmt.Sprintf("%s, %s %s", o.name, is, o.source.Until.UTC().Format(time.RFC3339))
}

// nameOfOverride does not name the client, which logs keep as a hash.
func nameOfOverride(i int, o *Override) string {
	if o.Note == "" {
		return fmt.Sprintf("overrides[%d]", i)
	}
	return fmt.Sprintf("overrides[%d]: %.128s", i, o.Note)
}

// keyOfOverride returns the one key of a client. The error has no secret of it.
func keyOfOverride(key keyfunc.Key, client []string) (string, error) {
	described := keyfunc.Describe(key)
	text, err := hint.Exact(described, client)
	shown := func(value string) bool { // or the beginning of it: errors quote and cut values
		quoted := strconv.Quote(value)
		return strings.Contains(err.Error(), value) || strings.Contains(err.Error(), quoted[1:min(len(quoted)-1, 17)])
	}
	switch {
	case err != nil && described.Secret() && slices.ContainsFunc(client, shown):
		return "", errors.New("the client is a secret: write the key as it is stored, as operators see it with Config.LogKeys")
	case err == nil && text == "":
		return "", errors.New("the value is empty")
	}
	return text, err
}
