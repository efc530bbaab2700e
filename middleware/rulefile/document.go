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
)

const (
	maxSize  = 1 << 20 // bytes of a document
	maxDepth = 32      // of lists and mappings in each other
)

// parse returns the root of the only YAML document in text, or a mistake with its
// place.
func parse(text []byte) (root *yaml.Node, at spot, err error) {
	if len(text) > maxSize {
		return nil, spot{}, fmt.Errorf("larger than %d bytes, which no rule file needs to be", maxSize)
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff")) // Windows editors write it
	if at, err := readable(text); err != nil {
		return nil, at, err
	}
	text = withoutJSONEscapes(text)
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	first, err := next(decoder)
	if errors.Is(err, io.EOF) {
		return nil, spot{1, 1, ""}, errors.New(`no document: write "version: 1" and "rules:"`)
	}
	if err == nil {
		var second *yaml.Node
		if second, err = next(decoder); err == nil {
			return nil, spot{line: second.Line, column: second.Column}, errors.New("a second document; keep all rules in one, without ---")
		}
	}
	if !errors.Is(err, io.EOF) {
		at, err := syntaxError(text, err)
		return nil, at, err
	}
	return first.Content[0], spot{}, nil
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
func readable(text []byte) (at spot, err error) {
	at = spot{1, 1, ""}
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
			at = spot{at.line + 1, 1, ""}
		default:
			at.column++
		}
		rest = rest[size:]
	}
	return at, nil
}

// inspect reports and flags nodes in the tree below a value that no rule file may have, such
// as aliases.
func (v value) inspect(depth int) {
	flag := func(v value, format string, args ...any) {
		v.d.flagged[v.Node] = true
		v.bad(format, args...)
	}
	switch {
	case v.Kind == yaml.AliasNode:
		flag(v, "aliases are not used in rule files; write the value out")
		return
	case v.Anchor != "":
		flag(v, "anchors are not used in rule files; remove &%s", v.Anchor)
	case v.Style&yaml.TaggedStyle != 0:
		flag(v, "tags are not used in rule files; remove %.64q, or put text that begins with ! in quotes", v.Tag)
	case depth > maxDepth:
		flag(v, "nested more than %d levels deep", maxDepth)
		return
	}
	if v.Kind != yaml.MappingNode {
		for i, n := range v.Content {
			v.part(i, n).inspect(depth + 1)
		}
		return
	}
	first := make(map[string]int, len(v.Content)/2) // lines
	for i := 0; i+1 < len(v.Content); i += 2 {
		key, of := v.Content[i], v.part(v.Content[i].Value, v.Content[i+1])
		name := value{key, v.d, of.path}
		line, again := first[key.Value]
		if key.Kind != yaml.ScalarNode {
			flag(value{key, v.d, v.path}, "a field must have a name, not a list or a mapping")
			continue
		}
		name.inspect(depth + 1)
		switch {
		case key.Tag == "!!merge":
			flag(value{key, v.d, v.path}, "merge keys (<<) are not used in rule files; write the fields out")
		case again:
			flag(name, "is already on line %d; keep one of them", line)
		default:
			first[key.Value] = key.Line
		}
		of.inspect(depth + 1)
	}
}
