package middleware

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/view"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// maxDetailed is how many rules a log line shows with what has changed in them.
const maxDetailed = 20

// logChanges logs the rules that were added, removed or changed since old. It does not notice a new
// function or a Key of the same name, because these cannot be compared. It logs nothing if
// a loader sets the rules that New was given, unless they have a version.
func (set *ruleset) logChanges(old *ruleset, logger *slog.Logger) {
	var added, removed, changed []string
	for i := range set.rules {
		now := &set.rules[i]
		if at, ok := old.find(now.check.Rule, i); !ok {
			added = append(added, now.check.Rule)
		} else if differ := differences(&old.rules[at].source, &now.source); differ != "" && len(changed) < maxDetailed {
			changed = append(changed, now.check.Rule+": "+differ)
		} else if differ != "" {
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

// differences are the fields in which the data of two rules differ, from what to what.
func differences(was, now *Rule) string {
	fieldsOf := func(r *Rule) map[string]json.RawMessage {
		var fields map[string]json.RawMessage
		text, _ := json.Marshal(viewOf(r)) // texts and numbers
		_ = json.Unmarshal(text, &fields)
		return fields
	}
	shown := func(value, other json.RawMessage) string {
		text := string(value)
		switch {
		case value == nil && string(other) == "true":
			return "false"
		case value == nil:
			return "none"
		}
		_ = json.Unmarshal(value, &text) // without quotes, if it is a text
		return text
	}
	before, after := fieldsOf(was), fieldsOf(now)
	names := maps.Clone(before)
	maps.Copy(names, after)
	var all []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !bytes.Equal(before[name], after[name]) {
			all = append(all, fmt.Sprintf("%s %.128s → %.128s", name, shown(before[name], after[name]), shown(after[name], before[name])))
		}
	}
	if len(was.Overrides) == len(now.Overrides) && !reflect.DeepEqual(was.Overrides, now.Overrides) {
		all = append(all, "overrides differ") // which are of clients that no log names
	}
	return strings.Join(all, ", ")
}

// viewOf returns how a rule is shown.
func viewOf(r *Rule) view.Rule {
	key, tierBy := keyfunc.Describe(r.Key), ""
	if r.TierBy != nil {
		tierBy = keyfunc.Describe(r.TierBy).String()
	}
	v := view.Rule{
		Name: r.Name, Match: r.Match, Key: key.String(), Limit: view.LimitsOf(r.own()), LimitsFor: r.LimitsFor != nil, TierBy: tierBy, Overrides: len(r.Overrides),
		Cost: max(r.Cost, 1), Costs: r.Costs, CostFor: r.CostFor != nil, MaxReserve: r.MaxReserve, ChargeOn: view.StatusesOf(r.ChargeOn), Fail: r.Fail.String(),
		Shadow: r.Shadow, Enforce: r.Enforce, Disabled: r.Disabled, Hidden: r.Hidden, Lease: r.Lease, Values: key.Values(), Secret: key.Secret(),
	}
	v.Tiers = make(map[string]view.Limits, len(r.Tiers))
	for tier, l := range r.Tiers {
		v.Tiers[tier] = view.LimitsOf(l)
	}
	if r.RetryAfter > 0 {
		v.RetryAfter = view.Span(r.RetryAfter)
	}
	if r.Ban != (algorithms.Ban{}) {
		v.Ban = &view.Ban{After: r.Ban.After, Within: view.Span(cmp.Or(r.Ban.Within, r.own()[0].Period)), For: view.Span(r.Ban.For)}
	}
	return v
}
