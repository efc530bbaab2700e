package keyfunc

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A field is the name of a field in a body.
type field struct {
	name     string
	folded   string // without case, '-' and '_'
	shortest int    // bytes of a name that resembles it
}

func newField(name string) field {
	folded := strings.Map(func(r rune) rune {
		if r == '-' || r == '_' {
			return -1
		}
		return fold(r)
	}, name)
	return field{name, folded, utf8.RuneCountInString(folded)}
}

// A place is the names that lead to a field of a body, the outermost first.
type place []field

// pointer returns the place that a JSON Pointer names. Any text without a slash at its
// beginning is the name of a field at the top.
func pointer(text string) (at place, err error) {
	path, isPointer := strings.CutPrefix(text, "/")
	if !isPointer {
		return place{newField(text)}, nil
	}
	for name := range strings.SplitSeq(path, "/") {
		plain := escapes.Replace(name)
		if strings.Count(name, "~") != strings.Count(name, "~0")+strings.Count(name, "~1") {
			err = fmt.Errorf(`%q: in a JSON Pointer write "~0" for "~", and "~1" for "/"`, name)
		}
		at = append(at, newField(plain))
	}
	return at, err
}

var escapes = strings.NewReplacer("~0", "~", "~1", "/")

func (at place) hasEmpty() bool {
	return slices.ContainsFunc(at, func(f field) bool { return f.name == "" })
}

// inForms returns the names that the field may have in a form: each of the place's, and
// those that decoders of forms make of them.
func (at place) inForms() place {
	if len(at) == 1 {
		return at
	}
	dotted, bracketed := at[0].name, at[0].name
	for _, f := range at[1:] {
		dotted, bracketed = dotted+"."+f.name, bracketed+"["+f.name+"]"
	}
	return append(slices.Clone(at), newField(dotted), newField(bracketed))
}

// fold maps all runes that [strings.EqualFold] calls equal to the lowest of them,
// and ASCII letters to lower case. ToLower and ToUpper are not used: for some runes
// they disagree with SimpleFold, which encoding/json goes by.
func fold(r rune) rune {
	if r >= utf8.RuneSelf {
		for next := unicode.SimpleFold(r); ; next = unicode.SimpleFold(next) {
			if next <= r {
				r = next
				break
			}
			r = next
		}
	}
	if 'A' <= r && r <= 'Z' {
		r += 'a' - 'A'
	}
	return r
}

// resembles reports whether some parser could take name for the field: encoding/json
// and some form decoders ignore the case, JSON decoders may ignore '-' and '_' too.
func (f field) resembles(name []byte) bool {
	want := f.folded
	for len(name) > 0 {
		r, size := rune(name[0]), 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRune(name)
		}
		name = name[size:]
		if r == '-' || r == '_' {
			continue
		}
		next, size := utf8.DecodeRuneInString(want)
		if size == 0 || fold(r) != next {
			return false
		}
		want = want[size:]
	}
	return want == ""
}

// A found is what a body has of a field.
type found struct {
	times       int    // names that resemble the field's
	name, value []byte // of the last of them; the value as it stands in the body
}

// only returns an error unless exactly one name resembles the field's.
func (f found) only(name string) error {
	switch f.times {
	case 0:
		return fmt.Errorf("%w: body: field %q is missing", ErrNoKey, name)
	case 1:
		return nil
	}
	return fmt.Errorf("field %q is there %d times", name, f.times)
}
