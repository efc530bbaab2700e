package rulefile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/seed75154129/ratelimit/internal/view"
)

const (
	maxSize  = 1 << 20 // bytes of a document
	maxDepth = 32      // of lists and mappings in each other
)

// parse returns the root of the only YAML document in text, or a mistake with its
// place.
func parse(text []byte) (root *yaml.Node, at place, err error) {
	if len(text) > maxSize {
		return nil, place{}, fmt.Errorf("larger than %d bytes, which no rule file needs to be", maxSize)
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff")) // Windows editors write it
	if at, err := readable(text); err != nil {
		return nil, at, err
	}
	text = withoutJSONEscapes(text)
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	first, err := next(decoder)
	if errors.Is(err, io.EOF) {
		return nil, place{1, 1}, errors.New(`no document: write "version: 1" and "rules:"`)
	}
	if err == nil {
		var second *yaml.Node
		if second, err = next(decoder); err == nil {
			return nil, placeOf(second), errors.New("a second document; keep all rules in one, without ---")
		}
	}
	if !errors.Is(err, io.EOF) {
		at, err := syntaxError(text, err)
		return nil, at, err
	}
	return first.Content[0], place{}, nil
}

// escapes are those in the strings of a JSON document.
var escapes = regexp.MustCompile(`\\(u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|.)`)

// withoutJSONEscapes rewrites the escapes of a JSON document that YAML does not have: slashes,
// and characters as two halves. Other texts stay as they are.
func withoutJSONEscapes(text []byte) []byte {
	if !json.Valid(text) {
		return text
	}
	return escapes.ReplaceAllFunc(text, func(escape []byte) []byte {
		switch {
		case string(escape) == `\/`:
			return escape[1:]
		case len(escape) == 2:
			return escape
		}
		high, _ := strconv.ParseUint(string(escape[2:6]), 16, 16) // they are digits
		low, _ := strconv.ParseUint(string(escape[8:]), 16, 16)
		return fmt.Appendf(nil, `\U%08X`, utf16.DecodeRune(rune(high), rune(low)))
	})
}

// readable returns an error, with its place, if text is not UTF-8 or has characters
// that editors and reviews do not show. Among these are characters that end a line,
// and so a comment, only for YAML.
func readable(text []byte) (at place, err error) {
	at = place{1, 1}
	for rest := text; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		switch {
		case r == utf8.RuneError && size == 1:
			return at, fmt.Errorf("byte 0x%02x is not UTF-8; save the file as UTF-8", rest[0])
		case r == '\r' && !bytes.HasPrefix(rest, []byte("\r\n")):
			return at, errors.New("a carriage return without a line feed, which few programs show as the end of a line; save the file with LF or CRLF")
		case unicode.In(r, unicode.Zl, unicode.Zp):
			return at, fmt.Errorf("line separator %U, which few programs show as the end of a line; write a line feed", r)
		case unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point):
			return at, fmt.Errorf("character %U, which is invisible or moves what is around it; remove it", r)
		case unicode.IsControl(r) && r != '\n' && r != '\r' && r != '\t':
			return at, fmt.Errorf("control character %U; remove it, or write it as an escape in double quotes", r)
		case r == '\n':
			at = place{at.line + 1, 1}
		default:
			at.column++
		}
		rest = rest[size:]
	}
	return at, nil
}

// inspect reports and flags nodes in the tree below n that no rule file may have, such
// as aliases.
func (d *decoder) inspect(n *yaml.Node, path string, depth int) {
	flag := func(format string, args ...any) {
		d.flagged[n] = true
		d.bad(placeOf(n), path, format, args...)
	}
	switch {
	case n.Kind == yaml.AliasNode:
		flag("aliases are not used in rule files; write the value out")
		return
	case n.Anchor != "":
		flag("anchors are not used in rule files; remove &%s", n.Anchor)
	case n.Style&yaml.TaggedStyle != 0:
		flag("tags are not used in rule files; remove %.64q, or put text that begins with ! in quotes", n.Tag)
	case depth > maxDepth:
		flag("nested more than %d levels deep", maxDepth)
		return
	}
	if n.Kind != yaml.MappingNode {
		for i, item := range n.Content {
			d.inspect(item, fmt.Sprintf("%s[%d]", path, i), depth+1)
		}
		return
	}
	first := make(map[string]*yaml.Node, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode {
			d.flagged[key] = true
			d.bad(placeOf(key), path, "a field must have a name, not a list or a mapping")
			continue
		}
		at := view.Path(path, key.Value)
		d.inspect(key, at, depth+1)
		if key.Tag == "!!merge" {
			d.flagged[key] = true
			d.bad(placeOf(key), path, "merge keys (<<) are not used in rule files; write the fields out")
		} else if was := first[key.Value]; was != nil {
			d.flagged[key] = true
			d.bad(placeOf(key), at, "is already on line %d; keep one of them", was.Line)
		} else {
			first[key.Value] = key
		}
		d.inspect(value, at, depth+1)
	}
}
