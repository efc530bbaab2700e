package rulefile

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/seed75154129/ratelimit/internal/view"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// version is the only version of the format. Of a document of another version nothing
// else is read, because its fields may mean something else.
const version = "1"

// decode returns the rules in text, or every mistake.
func (d *decoder) decode(text []byte) ([]ratelimit.Rule, error) {
	root, at, err := parse(text)
	if err != nil {
		d.bad(at, "", "%w", err)
		return nil, d.mistakes()
	}
	d.flagged = make(map[*yaml.Node]bool)
	rules := d.document(root)
	if err := d.mistakes(); err != nil {
		return nil, err
	}
	return rules, nil
}

var documentFields = []field[[]ratelimit.Rule]{
	{"version", "write version: " + version, func(d *decoder, _ *[]ratelimit.Rule, n *yaml.Node, path string) { d.integer(n, path) }},
	as("rules", func(rules *[]ratelimit.Rule) *[]ratelimit.Rule { return rules }, (*decoder).rules).orWrite("write a list of rules"),
}

func (d *decoder) document(root *yaml.Node) (rules []ratelimit.Rule) {
	if root.Kind != yaml.MappingNode {
		d.bad(placeOf(root), "", `must have the fields version and rules, got %s`, describe(root))
		return nil
	}
	if n := otherVersion(root); n != nil {
		d.bad(placeOf(n), "version", "this program reads version %s, and this document has %.64q; write it as version %s, or upgrade the program", version, n.Value, version)
		return nil
	}
	d.inspect(root, "", 0)
	record(d, &rules, root, "", documentFields)
	return rules
}

// otherVersion returns the version of a document that has another one.
func otherVersion(root *yaml.Node) *yaml.Node {
	for i := 0; i+1 < len(root.Content); i += 2 {
		if key, n := root.Content[i], root.Content[i+1]; key.Value == "version" && n.Tag == "!!int" && n.Value != version {
			return n
		}
	}
	return nil
}

func (d *decoder) rules(n *yaml.Node, path string) []ratelimit.Rule {
	items, ok := d.list(n, path, "rules, each starting with -")
	if !ok {
		return nil
	}
	rules := make([]ratelimit.Rule, len(items))
	d.at = make([]ruleAt, len(items))
	for i, item := range items {
		d.rule(&rules[i], &d.at[i], item, fmt.Sprintf("%s[%d]", path, i))
	}
	d.validate(rules, path)
	return rules
}

func (d *decoder) rule(r *ratelimit.Rule, at *ruleAt, n *yaml.Node, path string) {
	at.place = placeOf(n)
	if n.Kind != yaml.MappingNode {
		if !d.flagged[n] {
			d.bad(at.place, path, "must be a rule with the fields name, key and limit, got %s", describe(n))
		}
		return
	}
	at.fields = record(d, r, n, path, fields)
}

// validate reports the mistakes that [ratelimit.ValidateRules] finds, but for those in
// fields that already have a mistake.
func (d *decoder) validate(rules []ratelimit.Rule, path string) {
	if d.more > 0 {
		return
	}
	err := ratelimit.ValidateRules(rules)
	if err == nil {
		return
	}
	known := make(map[string]bool) // paths with a mistake
	for _, err := range d.errs {
		known[err.Path] = true
		for i, c := range err.Path {
			if c == '.' || c == '[' {
				known[err.Path[:i]] = true
			}
		}
	}
	for _, err := range view.Each(err) {
		mistake, ok := errors.AsType[*ratelimit.RuleError](err)
		if !ok || mistake.Index < 0 || mistake.Index >= len(d.at) {
			d.bad(place{}, path, "%w", err)
			continue
		}
		at, field := &d.at[mistake.Index], view.Snake(mistake.Field)
		if field == "limits" {
			field = "limit"
		}
		if at.fields == nil {
			continue
		}
		where, whole, err := at.place, strings.TrimSuffix(fmt.Sprintf("%s[%d].%s", path, mistake.Index, field), "."), mistake.Err
		if n := at.fields[field]; n != nil {
			n, whole, err = part(n, whole, err)
			where = placeOf(n)
		}
		if !known[whole] {
			d.bad(where, whole, "%w", err)
		}
	}
}

// part returns the part of a field that a mistake is about. Texts about a part
// begin with it: `pattern "/a": `, `tier "pro": `, "status 401: ", "[3]: limit: ", "after: ".
func part(n *yaml.Node, path string, err error) (*yaml.Node, string, error) {
	text := err.Error()
	begins := func(what, name string) bool { return strings.HasPrefix(text, what+name+": ") }
	if n.Kind == yaml.SequenceNode {
		for i, item := range slices.Backward(n.Content) { // of two equal items the second is the mistake
			if begins("pattern ", strconv.Quote(item.Value)) || begins("status ", item.Value) {
				return item, fmt.Sprintf("%s[%d]", path, i), err
			}
			if about, ok := strings.CutPrefix(text, fmt.Sprintf("[%d]: ", i)); ok {
				return part(item, fmt.Sprintf("%s[%d]", path, i), errors.New(about))
			}
		}
		return n, path, err
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch quoted := strconv.Quote(key.Value); {
		case begins("pattern ", quoted), begins("tier ", quoted):
			return key, join(path, key.Value), err
		case begins("", key.Value):
			return value, join(path, key.Value), errors.New(strings.TrimPrefix(text, key.Value+": "))
		}
	}
	if name, _, _ := strings.Cut(text, ": "); n.Kind == yaml.MappingNode && slices.Contains(namesOf(banFields), name) {
		path = join(path, name) // a missing field
	}
	return n, path, err
}
