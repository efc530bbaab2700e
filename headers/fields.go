package headers

import (
	"encoding/base64"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A bareItem is a value of RFC 9651, section 3.3. It keeps only what RateLimit
// and RateLimit-Policy need.
type bareItem struct {
	kind    byte // its first byte: '0' Integer, '.' Decimal, '"' String, 'a' Token, ':' '?' '@' '%'
	integer int64
	text    string // of a String
}

// A fieldParser parses a structured field by the algorithms of RFC 9651,
// section 4.2. It rejects inner lists, which our fields do not have. After
// ok=false nothing more can be read.
type fieldParser struct{ rest string }

// parserOf returns a parser of a field's lines; false if they are too long.
func parserOf(lines []string) (p fieldParser, ok bool) {
	return fieldParser{strings.Trim(strings.Join(lines, ","), " ")}, size(lines) <= maxField
}

// comma skips what separates two members, or what follows the last.
func (p *fieldParser) comma() bool {
	const whitespace = " \t"
	p.rest = strings.TrimLeft(p.rest, whitespace)
	if p.rest == "" {
		return true
	}
	comma := p.skip(',')
	p.rest = strings.TrimLeft(p.rest, whitespace)
	return comma && p.rest != ""
}

func (p *fieldParser) parameter() (key string, value bareItem, ok bool) {
	if p.rest == "" || !lower(p.rest[0]) && p.rest[0] != '*' {
		return "", bareItem{}, false
	}
	key = p.take(func(c byte) bool { return lower(c) || digit(c) || strings.IndexByte("_-.*", c) >= 0 })
	if !p.skip('=') {
		return key, bareItem{kind: '?'}, true
	}
	value, ok = p.bareItem()
	return key, value, ok
}

func (p *fieldParser) bareItem() (bareItem, bool) {
	if p.rest == "" {
		return bareItem{}, false
	}
	switch c := p.rest[0]; {
	case c == '-' || digit(c):
		return p.number()
	case c == '"':
		return p.string()
	case c == '*' || letter(c):
		p.take(tokenByte)
		return bareItem{kind: 'a'}, true
	case c == ':':
		return bareItem{kind: ':'}, p.bytes()
	case c == '%':
		return bareItem{kind: '%'}, p.displayString()
	case c == '@':
		p.skip('@')
		date, ok := p.number()
		return bareItem{kind: '@'}, ok && date.kind == '0'
	case c == '?':
		p.skip('?')
		return bareItem{kind: '?'}, p.skip('0') || p.skip('1')
	}
	return bareItem{}, false
}

// number reads an Integer of at most 15 digits, or a Decimal of at most 12
// digits and a fraction of 1 to 3.
func (p *fieldParser) number() (bareItem, bool) {
	negative := p.skip('-')
	whole := p.take(digit)
	if p.skip('.') {
		fraction := p.take(digit)
		return bareItem{kind: '.'}, whole != "" && len(whole) <= 12 && fraction != "" && len(fraction) <= 3
	}
	if whole == "" || len(whole) > 15 {
		return bareItem{}, false
	}
	n, err := strconv.ParseInt(whole, 10, 64)
	if negative {
		n = -n
	}
	return bareItem{kind: '0', integer: n}, err == nil
}

func (p *fieldParser) string() (bareItem, bool) {
	var text strings.Builder
	p.skip('"')
	for !p.skip('"') {
		escaped := p.skip('\\')
		if p.rest == "" || !printable(p.rest[0]) || escaped && p.rest[0] != '"' && p.rest[0] != '\\' {
			return bareItem{}, false
		}
		text.WriteByte(p.rest[0])
		p.rest = p.rest[1:]
	}
	return bareItem{kind: '"', text: text.String()}, true
}

// bytes reads a Byte Sequence, whose padding may be missing.
func (p *fieldParser) bytes() bool {
	p.skip(':')
	text := p.take(func(c byte) bool { return letter(c) || digit(c) || strings.IndexByte("+/=", c) >= 0 })
	_, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
	return err == nil && p.skip(':')
}

// displayString reads %"…", in which %xx is a byte of UTF-8.
func (p *fieldParser) displayString() bool {
	if p.skip('%'); !p.skip('"') {
		return false
	}
	var text []byte
	for !p.skip('"') {
		if p.rest == "" || !printable(p.rest[0]) {
			return false
		}
		if !p.skip('%') {
			text, p.rest = append(text, p.rest[0]), p.rest[1:]
			continue
		}
		hex := p.rest[:min(2, len(p.rest))]
		n, err := strconv.ParseUint(hex, 16, 8)
		if err != nil || len(hex) < 2 || strings.ToLower(hex) != hex {
			return false
		}
		text, p.rest = append(text, byte(n)), p.rest[2:]
	}
	return utf8.Valid(text)
}

// skip skips c, if it is the next byte.
func (p *fieldParser) skip(c byte) bool {
	if p.rest == "" || p.rest[0] != c {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

// take skips the bytes that ok accepts, and returns them.
func (p *fieldParser) take(ok func(byte) bool) string {
	n := 0
	for n < len(p.rest) && ok(p.rest[n]) {
		n++
	}
	taken := p.rest[:n]
	p.rest = p.rest[n:]
	return taken
}

func digit(c byte) bool     { return '0' <= c && c <= '9' }
func lower(c byte) bool     { return 'a' <= c && c <= 'z' }
func letter(c byte) bool    { return lower(c | 0x20) }
func printable(c byte) bool { return 0x20 <= c && c < 0x7f }

// tokenByte reports whether c may follow the first letter of a Token: tchar, ':' and '/'.
func tokenByte(c byte) bool {
	return letter(c) || digit(c) || strings.IndexByte("!#$%&'*+-.^_`|~:/", c) >= 0
}
