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
)

const (
	maxErrors  = 100  // mistakes that are reported
	maxCounted = 1000 // mistakes that are sorted by their places; others are only counted
)

// A decoder reads one document. Every mistake has a place: nodes know their lines.
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

// A spot is where something in a rule is, for mistakes in it.
type spot struct {
	place
	path string
}

// A place is a line and a column of a document, from 1; the zero place is none.
type place struct{ line, column int }

func placeOf(n *yaml.Node) place { return place{n.Line, n.Column} }

func (d *decoder) bad(at place, path, format string, args ...any) {
	if len(d.errs) == maxCounted {
		d.more++
		return
	}
	d.errs = append(d.errs, &Error{d.name, at.line, at.column, path, fmt.Errorf(format, args...)})
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

// free reports whether a field is a note.
func free(field string) bool { return strings.HasPrefix(field, "x-") }

// meant returns " (did you mean …?)" if a word is similar to a known one.
func meant(word string, known []string) string {
	if best := near.Word(word, known); best != "" {
		return " (did you mean " + best + "?)"
	}
	return ""
}

// unknown reports an unknown field, with the field that may be meant.
func (d *decoder) unknown(key *yaml.Node, path string, known []string) {
	if d.more > 0 {
		d.more++ // finding a similar word takes time
		return
	}
	hint := cmp.Or(meant(key.Value, known), "; known are "+listed(known)+`, and any that begins with "x-"`)
	d.bad(placeOf(key), path, "no such field%s", hint)
}

func listed(words []string) string {
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(slices.Values(words)), ", ")
}

// A field describes a field of a T in a document.
type field[T any] struct {
	name     string // of the field of T, in snake case
	required string // what to write if it is missing; "" if it is optional
	read     func(d *decoder, of *T, n *yaml.Node, path string)
}

// as returns an optional field whose value goes where of says.
func as[T, V any](name string, of func(*T) *V, read func(*decoder, *yaml.Node, string) V) field[T] {
	return field[T]{name, "", func(d *decoder, t *T, n *yaml.Node, path string) { *of(t) = read(d, n, path) }}
}

// orWrite makes a field a required one.
func (f field[T]) orWrite(what string) field[T] {
	f.required = what
	return f
}

func namesOf[T any](fields []field[T]) []string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	return names
}

// record reads the fields of a mapping, and returns those that are there.
func record[T any](d *decoder, of *T, n *yaml.Node, path string, fields []field[T]) (found map[string]*yaml.Node) {
	found = make(map[string]*yaml.Node)
	d.fields(n, path, func(key, value *yaml.Node, path string) {
		for _, f := range fields {
			if f.name == key.Value {
				found[f.name], d.spots[path] = value, spot{placeOf(value), path}
				f.read(d, of, value, path)
				return
			}
		}
		if !free(key.Value) {
			d.unknown(key, path, namesOf(fields))
		}
	})
	for _, f := range fields {
		if f.required != "" && found[f.name] == nil {
			d.bad(placeOf(n), view.Path(path, f.name), "required: %s", f.required)
		}
	}
	return found
}

// fields calls do for each field of a mapping whose name has no mistake.
func (d *decoder) fields(n *yaml.Node, path string, do func(key, value *yaml.Node, path string)) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if key := n.Content[i]; !d.flagged[key] {
			at := view.Path(path, key.Value)
			d.spots[at] = spot{placeOf(key), at}
			do(key, n.Content[i+1], at)
		}
	}
}
