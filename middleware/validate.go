package middleware

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/view"
)

// A RuleError is a mistake in one field of one rule.
type RuleError struct {
	Index       int    // of the rule; -1 if the list of rules is empty
	Rule, Field string // the rule's name; the field's name in Go
	At          []any  // which part of the field: indexes and names, such as 2 and "client" in Overrides; nil is all of it
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
	where = view.Path(where, e.At...)
	return fmt.Sprintf("middleware: %s: %v", where, e.Err)
}

// Unwrap returns Err.
func (e *RuleError) Unwrap() error { return e.Err }

const (
	maxRules    = 1000   // a request is compared with each
	maxPatterns = 10_000 // of all rules together, for the same reason
	maxFound    = 20     // mistakes of one kind in one rule that are named
)

// ValidateRules returns all mistakes, each a [*RuleError], joined.
func ValidateRules(rules []Rule) error { return validate(rules, share{}) }

// validate returns the mistakes in rules of which a region has a share.
func validate(rules []Rule, s share) error {
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
		if first, taken := named[r.Name]; !taken {
			named[r.Name] = i
		} else if r.Name != "" {
			errs = append(errs, &RuleError{i, r.Name, "Name", nil, fmt.Errorf("rules[%d] and rules[%d] have the same; counts would be shared", first, i)})
		}
		for _, mistake := range r.look(s, false) {
			mistake.Index, mistake.Rule = i, r.Name
			errs = append(errs, mistake)
		}
	}
	return errors.Join(errs...)
}

// A row of the table of mistakes says what can be wrong with a field, and what to write. It looks at
// a rule that has the field or, one after the other, at all limits that a request may have together.
type row struct {
	field    string // of Rule; "" is the one that has the limits
	required bool   // the row looks at rules without the field, too
	warn     bool   // the rule is valid, but probably a mistake
	rule     func(r *Rule, f *found)
	limits   func(r *Rule, set *limitSet, f *found)

	index []int // of the field
}

func init() {
	for i := range table {
		field, _ := reflect.TypeFor[Rule]().FieldByName(table[i].field)
		table[i].index = field.Index
	}
}

// concerns reports whether the row looks at a rule.
func (row *row) concerns(r *Rule) bool {
	return row.required || row.index == nil || !reflect.ValueOf(r).Elem().FieldByIndex(row.index).IsZero()
}

// found is what a row has found in a rule.
type found struct {
	share share // of each limit
	field string
	at    []any
	all   []*RuleError
	more  int
}

// say notes a mistake in all of the field.
func (f *found) say(format string, args ...any) { f.in(nil, format, args...) }

// in notes a mistake in a part of the field.
func (f *found) in(at []any, format string, args ...any) {
	if len(f.all) == maxFound {
		f.more++
		return
	}
	e := &RuleError{Field: f.field, At: slices.Concat(f.at, at), Err: fmt.Errorf(format, args...)}
	if !slices.ContainsFunc(f.all, func(other *RuleError) bool { return other.Error() == e.Error() }) {
		f.all = append(f.all, e) // else it was said about other limits
	}
}

// err notes mistakes that were joined.
func (f *found) err(at []any, err error) {
	for _, err := range view.Each(err) {
		f.in(at, "%w", err)
	}
}

// look returns what the rows of mistakes, or of warnings, find in a rule.
func (r *Rule) look(s share, warn bool) (all []*RuleError) {
	few := *r // what is too much to look at is left out
	for _, part := range [...]struct {
		field, entries string
		n              int
		leaveOut       func()
	}{
		{"Match", "%d patterns; at most %d", len(r.Match), func() { few.Match = nil }},
		{"Tiers", "%d tiers; at most %d", len(r.Tiers), func() { few.Tiers = nil }},
		{"Overrides", "%d overrides; at most %d: give many clients a tier by Config.TierFor", len(r.Overrides), func() { few.Overrides = nil }},
		{"Costs", "%d patterns; at most %d", len(r.Costs), func() { few.Costs = nil }},
	} {
		if part.n > maxEntries {
			all = append(all, &RuleError{Field: part.field, Err: fmt.Errorf(part.entries, part.n, maxEntries)})
			part.leaveOut()
		}
	}
	sets := few.sets()
	for _, set := range sets {
		set.valid = slices.DeleteFunc(slices.Clone(set.all), func(l algorithms.Limit) bool { return l.Validate() != nil })
	}
	for i := range table {
		if row := &table[i]; row.warn == warn && row.concerns(&few) {
			all = append(all, row.look(&few, s, sets)...)
		}
	}
	return all
}

// look returns what a row finds in a rule with these limits.
func (row *row) look(r *Rule, s share, sets []*limitSet) []*RuleError {
	f := found{field: row.field, share: s}
	if row.rule != nil {
		row.rule(r, &f)
		sets = nil
	}
	for _, set := range sets {
		if row.field == "" {
			f.field, f.at = set.field, set.at
		}
		row.limits(r, set, &f)
	}
	if f.more > 0 {
		f.all = append(f.all, &RuleError{Field: f.field, Err: fmt.Errorf("and %d more", f.more)})
	}
	return f.all
}
