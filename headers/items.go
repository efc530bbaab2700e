package headers

import (
	"encoding/base64"
	"strconv"
	"strings"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/inside"
)

// An item is a member of a RateLimit-Policy or RateLimit list: a name, a number
// of units (q or r) and a number of seconds (w or t).
type item struct {
	name    string
	units   int64
	seconds int64  // or absent
	key     []byte // pk; nil if there is none
	unit    string // qu; "" is requests
	text    string // the text of an item that was parsed, with parameters that are not ours
}

const (
	absent     = -1
	maxInteger = 999_999_999_999_999 // of RFC 9651, section 3.3.1
)

// appendItems appends a list as RFC 9651, section 4.1, serialises it.
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
	if m.unit != "" {
		b = append(append(append(b, `;qu="`...), m.unit...), '"')
	}
	if m.key != nil {
		b = append(b, ";pk=:"...)
		b = base64.StdEncoding.AppendEncode(b, m.key)
		b = append(b, ':')
	}
	return b
}

// lent has unexported functions of package algorithms.
var lent = algorithms.Internal.Open(&inside.Allow)

// policyName names a result's limit in fields and problem documents: by its rule, by its
// tier if that counts apart and, if the decision has other windows of the rule, by its
// window, as in "plan/month@UTC"; and by its algorithm, if one of these has the same
// period.
func policyName(d *algorithms.Decision, i int) string {
	r, several, alike := &d.Results[i], false, false
	counting := lent.Counting(r.Check.Limit)
	for _, by := range [...]int{-1, 1} {
		for j := i + by; j >= 0 && j < len(d.Results) && d.Results[j].Check.Rule == r.Check.Rule; j += by {
			other := lent.Counting(d.Results[j].Check.Limit)
			samePeriod := other.Period == counting.Period && other.Calendar == counting.Calendar
			several, alike = several || !samePeriod, alike || samePeriod && other != counting
		}
	}
	name := r.Check.Rule
	if r.Check.Tier != "" {
		name += "/" + r.Check.Tier
	}
	if several || alike {
		_, window, _ := strings.Cut(r.Check.Limit.String(), "/")
		window, _, _ = strings.Cut(window, " ")
		name += "/" + window
	}
	if alike {
		name += "/" + counting.Algorithm
	}
	return itemName(name)
}

// itemName returns a rule's name in printable ASCII, which is all that a String
// can hold.
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

// mergeItems returns the items in a field's lines with ours added. If the lines
// are malformed, which clients have to ignore, it returns ours alone. The result
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
	p, ok := parserOf(lines)
	if !ok {
		return nil, false
	}
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
	m := item{name: name.text, seconds: absent}
	if !ok || name.kind != '"' {
		return m, false
	}
	var count, window bareItem // if a parameter comes twice, the last counts
	for p.skip(';') {
		p.rest = strings.TrimLeft(p.rest, " ")
		key, value, ok := p.parameter()
		switch {
		case !ok:
			return m, false
		case key == string(units):
			count = value
		case key == string(seconds):
			window = value
		}
	}
	if window.kind != 0 {
		m.seconds = window.integer
	}
	m.units = count.integer
	return m, count.isCount() && (window.kind == 0 || window.isCount())
}

func (v bareItem) isCount() bool { return v.kind == '0' && v.integer >= 0 }
