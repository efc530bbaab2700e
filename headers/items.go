package headers

import (
	"slices"
	"strconv"
	"strings"

	"github.com/dunglas/httpsfv"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/naming"
)

// An item is a member of a RateLimit-Policy or RateLimit list: a name, a number
// of units (q or r) and a number of seconds (w or t).
type item struct {
	name    string
	units   int64
	seconds int64  // or absent
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
	return b
}

// policyName names a result's limit in fields and problem documents: by its rule and,
// if the decision has other windows of the rule, by its window, as in "plan/month@UTC"; and
// by its algorithm, if one of these has the same period.
func policyName(d *algorithms.Decision, i int) string {
	r, several, alike := &d.Results[i], false, false
	limit := &r.Check.Limit
	for _, by := range [...]int{-1, 1} {
		for j := i + by; j >= 0 && j < len(d.Results) && d.Results[j].Check.Rule == r.Check.Rule; j += by {
			other := &d.Results[j].Check.Limit
			samePeriod := other.Period == limit.Period && other.Calendar == limit.Calendar
			several, alike = several || !samePeriod, alike || samePeriod && naming.Limit(*other).Number() != naming.Limit(*limit).Number()
		}
	}
	name := r.Check.Rule
	if several || alike {
		_, window, _ := strings.Cut(r.Check.Limit.String(), "/")
		window, _, _ = strings.Cut(window, " ")
		name += "/" + window
	}
	if alike {
		name += "/" + naming.Limit(*limit).Name()
	}
	return itemName(name)
}

// itemName returns a rule's name in printable ASCII, which is all that a String
// can hold.
func itemName(rule string) string {
	printable := func(c byte) bool { return 0x20 <= c && c < 0x7f }
	i := 0
	for i < len(rule) && printable(rule[i]) {
		i++
	}
	if i == len(rule) {
		return rule
	}
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
// are malformed, which clients have to ignore, it returns ours alone.
func mergeItems(lines []string, ours []item, units, seconds byte) (merged []item) {
	theirs, ok := parseItems(lines, units, seconds)
	if !ok {
		return ours
	}
	for _, m := range append(theirs, ours...) {
		merged = addItem(merged, m)
	}
	return merged
}

// parseItems returns the items of a field's lines. It returns false if the lines are too
// long or malformed, or if a member is not an item as ours are.
func parseItems(lines []string, units, seconds byte) (items []item, ok bool) {
	if size(lines) > maxField {
		return nil, false
	}
	members, err := httpsfv.UnmarshalList(lines)
	if err != nil {
		return nil, false
	}
	for _, member := range members {
		m, ok := parsedItem(member, units, seconds)
		if !ok {
			return nil, false
		}
		items = append(items, m)
	}
	return items, true
}

func parsedItem(member httpsfv.Member, units, seconds byte) (m item, ok bool) {
	parsed, _ := member.(httpsfv.Item) // an inner list is none, and has no name
	if m.name, ok = parsed.Value.(string); !ok {
		return m, false
	}
	if m.units, ok = count(parsed, units); !ok {
		return m, false
	}
	m.seconds = absent
	if _, there := parsed.Params.Get(string(seconds)); there {
		if m.seconds, ok = count(parsed, seconds); !ok {
			return m, false
		}
	}
	text, err := httpsfv.Marshal(parsed)
	m.text = text
	return m, err == nil
}

// count returns a parameter that is an Integer of at least 0.
func count(of httpsfv.Item, parameter byte) (n int64, ok bool) {
	value, _ := of.Params.Get(string(parameter))
	n, ok = value.(int64)
	return n, ok && n >= 0
}

// addItem appends an item. Of two with one name, the one with fewer units stays
// or, among equals, the one with more seconds.
func addItem(items []item, add item) []item {
	at := slices.IndexFunc(items, func(there item) bool { return there.name == add.name })
	if at < 0 {
		return append(items, add)
	}
	if there := &items[at]; add.units < there.units || add.units == there.units && add.seconds > there.seconds {
		*there = add
	}
	return items
}
