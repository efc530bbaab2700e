package headers

import (
	"encoding/base64"
	"strconv"
	"strings"
)

// An item is a member of a RateLimit-Policy or RateLimit list: a name, how many
// units (q or r), in how many seconds (w or t).
type item struct {
	name    string
	units   int64
	seconds int64 // absent where there is none
	key     []byte
	text    string // as somebody else wrote it, with parameters that are not ours
}

const (
	absent     = -1
	maxInteger = 999_999_999_999_999 // of RFC 9651, section 3.3.1
)

// appendItems writes a list as RFC 9651, section 4.1 serialises it.
func appendItems(b []byte, items []item, units, seconds byte) []byte {
	for i := range items {
		if i > 0 {
			b = append(b, ", "...)
		}
		if items[i].text != "" {
			b = append(b, items[i].text...)
		} else {
			b = items[i].append(b, units, seconds)
		}
	}
	return b
}

func (m *item) append(b []byte, units, seconds byte) []byte {
	b = append(b, '"')
	for i := range len(m.name) {
		if c := m.name[i]; c == '"' || c == '\\' {
			b = append(b, '\\')
		}
		b = append(b, m.name[i])
	}
	b = append(b, '"', ';', units, '=')
	b = strconv.AppendInt(b, min(max(m.units, 0), maxInteger), 10)
	if m.seconds != absent {
		b = append(b, ';', seconds, '=')
		b = strconv.AppendInt(b, min(max(m.seconds, 0), maxInteger), 10)
	}
	if m.key != nil {
		b = append(b, ";pk=:"...)
		b = base64.StdEncoding.AppendEncode(b, m.key)
		b = append(b, ':')
	}
	return b
}

// itemName returns a rule's name as a String can hold it: of printable ASCII.
func itemName(rule string) string {
	for i := range len(rule) {
		if !printable(rule[i]) {
			return escapeName(rule)
		}
	}
	return rule
}

func escapeName(rule string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(rule) {
		if c := rule[i]; printable(c) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	return b.String()
}

// mergeItems returns the items of a field's lines with ours added, and ours
// alone where the lines are malformed, which clients have to ignore. The result
// is in room, if it fits.
func mergeItems(room []item, lines []string, ours []item, units, seconds byte) []item {
	merged, ok := parseItems(room, lines, units, seconds)
	if !ok {
		return ours
	}
	for i := range ours {
		merged = addItem(merged, ours[i])
	}
	return merged
}

func parseItems(items []item, lines []string, units, seconds byte) ([]item, bool) {
	p := fieldParser{strings.Trim(strings.Join(lines, ","), " ")}
	for p.rest != "" {
		from := p.rest
		m, ok := p.item(units, seconds)
		if !ok {
			return nil, false
		}
		m.text = from[:len(from)-len(p.rest)]
		items = addItem(items, m)
		if !p.comma() {
			return nil, false
		}
	}
	return items, true
}

func (p *fieldParser) item(units, seconds byte) (item, bool) {
	name, ok := p.bareItem()
	m := item{name: name.text, units: absent, seconds: absent}
	if !ok || name.kind != '"' {
		return m, false
	}
	for p.skip(';') {
		p.rest = strings.TrimLeft(p.rest, " ")
		key, value, ok := p.parameter()
		if !ok {
			return m, false
		}
		var place *int64
		switch key {
		case string(units):
			place = &m.units
		case string(seconds):
			place = &m.seconds
		default:
			continue
		}
		if value.kind != '0' || value.integer < 0 {
			return m, false
		}
		*place = value.integer
	}
	return m, m.units != absent
}
