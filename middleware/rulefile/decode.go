package rulefile

import (
	"cmp"
	"errors"

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
	d.flagged, d.spots = make(map[*yaml.Node]bool), make(map[string]spot)
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
	for i, item := range items {
		d.rule(&rules[i], item, view.Path(path, i))
	}
	d.validate(rules, path)
	return rules
}

func (d *decoder) rule(r *ratelimit.Rule, n *yaml.Node, path string) {
	d.spots[path] = spot{placeOf(n), path}
	if n.Kind != yaml.MappingNode {
		if !d.flagged[n] {
			d.bad(placeOf(n), path, "must be a rule with the fields name, key and limit, got %s", describe(n))
		}
		return
	}
	record(d, r, n, path, fields)
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
	wrong, within := make(map[string]bool), make(map[string]bool) // paths with a mistake, and with one in a part
	for _, err := range d.errs {
		wrong[err.Path] = true
		for i, c := range err.Path {
			if c == '.' || c == '[' {
				within[err.Path[:i]] = true
			}
		}
	}
	for _, err := range view.Each(err) {
		mistake, ok := errors.AsType[*ratelimit.RuleError](err)
		if !ok || mistake.Index < 0 {
			d.bad(place{}, path, "%w", err)
			continue
		}
		parts := []any{mistake.Index}
		if mistake.Field != "" {
			parts = append(parts, cmp.Or(renamed[mistake.Field], view.Snake(mistake.Field)))
		}
		whole, at, known := path, spot{}, false
		for _, part := range append(parts, mistake.At...) {
			whole = view.Path(whole, part)
			at = cmp.Or(d.spots[whole], spot{at.place, whole})
			known = known || wrong[at.path]
		}
		if !known && !within[at.path] {
			d.bad(at.place, at.path, "%w", mistake.Err)
		}
	}
}

// renamed are fields of Rule that have another name in a document.
var renamed = map[string]string{"Limits": "limit"}
