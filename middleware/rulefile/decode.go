package rulefile

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/seed75154129/ratelimit/internal/near"
	"github.com/seed75154129/ratelimit/internal/view"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

const (
	maxErrors  = 100  // mistakes that are reported
	maxCounted = 1000 // mistakes that are sorted by their places; others are only counted
)

// A decoder reads one document.
type decoder struct {
	name    string
	keys    map[string]keyfunc.Key // by name, beside header:NAME, apikey:NAME and cookie:NAME
	keyFor  func(string) keyfunc.Key
	made    map[string]*named // by their names
	tiers   []string          // nil means any
	errs    []*Error
	more    int                 // mistakes that are not in errs
	flagged map[*yaml.Node]bool // nodes whose mistake was reported
	spots   map[string]spot     // by the paths of what is in rules
}

// A spot is a place in a document. Lines and columns count from 1; the zero spot is none.
type spot struct {
	line, column int
	path         string
}

func (d *decoder) bad(at spot, format string, args ...any) {
	if len(d.errs) == maxCounted {
		d.more++
		return
	}
	d.errs = append(d.errs, &Error{d.name, at.line, at.column, at.path, fmt.Errorf(format, args...)})
}

// mistakes joins the errors in the order of the document.
func (d *decoder) mistakes() error {
	slices.SortStableFunc(d.errs, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	var errs []error
	for _, err := range d.errs[:min(len(d.errs), maxErrors)] {
		errs = append(errs, err)
	}
	if more := len(d.errs) - len(errs) + d.more; more > 0 {
		errs = append(errs, fmt.Errorf("%s: and %d more", printable(d.name), more))
	}
	return errors.Join(errs...)
}

// decode returns the rules in text, or every mistake.
func (d *decoder) decode(text []byte) (rules []ratelimit.Rule, err error) {
	root, at, err := parse(text)
	if err != nil {
		d.bad(at, "%w", err)
		return nil, d.mistakes()
	}
	d.made, d.flagged, d.spots = make(map[string]*named), make(map[*yaml.Node]bool), make(map[string]spot)
	document := value{Node: root, d: d}
	if n := member(root, "version"); n != nil && n.Tag == "!!int" && n.Value != version {
		document.part("version", n).bad("this program reads version %s, and this document has %.64q; write it as version %s, or upgrade the program", version, n.Value, version)
	} else if document.is(root.Kind == yaml.MappingNode, "must have the fields version and rules,", "") {
		document.inspect(0)
		record(document, &rules, documentFields)
	}
	if err := d.mistakes(); err != nil {
		return nil, err
	}
	return rules, nil
}

// validate reports the mistakes that [ratelimit.ValidateRules] finds, but for those in
// what already has a mistake.
func (d *decoder) validate(rules []ratelimit.Rule) {
	wrong, within := make(map[string]bool), make(map[string]bool) // paths with a mistake, and with one in a part
	for _, err := range d.errs {
		wrong[err.Path] = true
		for i, c := range err.Path {
			if c == '.' || c == '[' {
				within[err.Path[:i]] = true
			}
		}
	}
	for _, err := range view.Each(ratelimit.ValidateRules(rules)) {
		mistake, _ := errors.AsType[*ratelimit.RuleError](err)
		parts := []any{"rules", mistake.Index}
		if mistake.Field != "" {
			parts = append(parts, cmp.Or(renamed[mistake.Field], view.Snake(mistake.Field)))
		}
		path, at, known := "", spot{}, false
		for _, part := range append(parts, mistake.At...) {
			path = view.Path(path, part)
			at = cmp.Or(d.spots[path], spot{at.line, at.column, path})
			known = known || wrong[at.path]
		}
		if !known && !within[at.path] {
			d.bad(at, "%w", mistake.Err)
		}
	}
}

// renamed are fields of Rule that have another name in a document.
var renamed = map[string]string{"Limits": "limit"}

// A value is a node of a document with its path.
type value struct {
	*yaml.Node
	d    *decoder
	path string
}

func (v value) spot() spot { return spot{v.Line, v.Column, v.path} }

func (v value) bad(format string, args ...any) { v.d.bad(v.spot(), format, args...) }

// is reports whether a value is what it must be, and says so if it is not.
func (v value) is(ok bool, must, mend string) bool {
	if v.d.flagged[v.Node] {
		return false
	}
	if !ok {
		v.bad("%s got %s%s", must, v.describe(), mend)
	}
	return ok
}

// part is a node in the value's list or mapping.
func (v value) part(at any, n *yaml.Node) value { return value{n, v.d, view.Path(v.path, at)} }

// items yields the items of a list.
func (v value) items(do func(item value)) {
	for i, n := range v.Content {
		item := v.part(i, n)
		v.d.spots[item.path] = item.spot()
		do(item)
	}
}

// members yields the names and values of a mapping, but for those whose name has a mistake.
func (v value) members(do func(name, of value)) {
	for i := 0; i+1 < len(v.Content); i += 2 {
		if name := v.part(v.Content[i].Value, v.Content[i]); !v.d.flagged[name.Node] {
			v.d.spots[name.path] = name.spot()
			do(name, value{v.Content[i+1], v.d, name.path})
		}
	}
}

// member returns the value of a mapping's key; nil if there is none.
func member(n *yaml.Node, key string) *yaml.Node {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// A field describes a field of a T in a document.
type field[T any] struct {
	name     string // of the field of T, in snake case
	required string // what to write if it is missing; "" if it is optional
	read     func(of *T, v value)
}

// record reads the fields of a mapping.
func record[T any](v value, of *T, fields []field[T]) {
	names, found := make([]string, len(fields)), make(map[string]bool)
	for i, f := range fields {
		names[i] = f.name
	}
	v.members(func(name, member value) {
		if i := slices.Index(names, name.Value); i >= 0 {
			found[name.Value], v.d.spots[member.path] = true, member.spot()
			fields[i].read(of, member)
		} else if !strings.HasPrefix(name.Value, "x-") { // which are notes
			name.unknown(names)
		}
	})
	for _, f := range fields {
		if f.required != "" && !found[f.name] {
			v.part(f.name, v.Node).bad("required: %s", f.required)
		}
	}
}

// unknown reports an unknown field, with the field that may be meant.
func (v value) unknown(known []string) {
	if v.d.more > 0 {
		v.d.more++ // finding a similar word takes time
		return
	}
	v.bad("no such field%s", cmp.Or(meant(v.Value, known), "; known are "+listed(known)+`, and any that begins with "x-"`))
}

// meant returns " (did you mean …?)" if a word is similar to a known one.
func meant(word string, known []string) string {
	if best := near.Word(word, known); best != "" {
		return " (did you mean " + best + "?)"
	}
	return ""
}

func listed(words []string) string {
	return cmp.Or(strings.Join(slices.Sorted(slices.Values(words)), ", "), "none")
}
