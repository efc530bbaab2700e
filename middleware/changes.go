package middleware

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"reflect"

	"github.com/seed75154129/ratelimit/internal/view"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// logChanges logs the names of the rules that were added, removed or changed since old. It does
// not notice a new function or a Key of the same name, because these cannot be compared. It logs
// nothing if a loader sets the rules that New was given, unless they have a version.
func (set *ruleset) logChanges(old *ruleset, logger *slog.Logger) {
	var added, removed, changed []string
	for i := range set.rules {
		now := &set.rules[i]
		if at, ok := old.find(now.check.Rule, i); !ok {
			added = append(added, now.check.Rule)
		} else if !sameData(&old.rules[at].source, &now.source) {
			changed = append(changed, now.check.Rule)
		}
	}
	for i := range old.rules {
		if _, ok := set.find(old.rules[i].check.Rule, i); !ok {
			removed = append(removed, old.rules[i].check.Rule)
		}
	}
	attrs := []slog.Attr{slog.Int("rules", len(set.rules)), slog.Int("generation", set.generation)}
	if set.version != 0 {
		attrs = append(attrs, slog.Int64("version", set.version))
	}
	text := "ratelimit: rules set again"
	if len(added)+len(removed)+len(changed) > 0 {
		text = "ratelimit: rules replaced"
		attrs = append(attrs, slog.Any("added", added), slog.Any("removed", removed), slog.Any("changed", changed))
	} else if set.generation == 2 && set.version == 0 {
		return
	}
	logger.LogAttrs(context.Background(), slog.LevelInfo, text, attrs...)
}

// sameData reports whether two rules have the same data.
func sameData(a, b *Rule) bool {
	was, _ := json.Marshal(viewOf(a)) // texts and numbers
	now, _ := json.Marshal(viewOf(b))
	return bytes.Equal(was, now) && (len(a.Overrides) == 0 || reflect.DeepEqual(a.Overrides, b.Overrides))
}

// viewOf returns how a rule is shown.
func viewOf(r *Rule) view.Rule {
	key := keyfunc.Describe(r.Key)
	v := view.Rule{
		Name: r.Name, Match: r.Match, Key: key.String(), Limit: view.LimitsOf(r.own()), LimitsFor: r.LimitsFor != nil, Overrides: len(r.Overrides),
		Cost: max(r.Cost, 1), Costs: r.Costs, CostFor: r.CostFor != nil, ChargeOn: view.StatusesOf(r.ChargeOn), Fail: r.Fail.String(),
		Shadow: r.Shadow, Enforce: r.Enforce, Hidden: r.Hidden, Note: r.Note, Values: key.Values(), Secret: key.Secret(),
	}
	v.Tiers = make(map[string]view.Limits, len(r.Tiers))
	for tier, l := range r.Tiers {
		v.Tiers[tier] = view.LimitsOf(l)
	}
	if r.Sync > 0 {
		v.Sync = view.Span(r.Sync)
	}
	if r.RetryAfter > 0 {
		v.RetryAfter = view.Span(r.RetryAfter)
	}
	if r.Ban != (Ban{}) {
		v.Ban = &view.Ban{After: r.Ban.After, Within: view.Span(cmp.Or(r.Ban.Within, r.own()[0].Period)), For: view.Span(r.Ban.For)}
	}
	return v
}
