package keyfunc

import (
	"fmt"
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
		return fmt.Errorf("field %q is missing", name)
	case 1:
		return nil
	}
	return fmt.Errorf("field %q is there %d times", name, f.times)
}
