// Package view has the forms in which rules, keys, limits, times and errors are shown: in
// JSON, in rule files, on pages and in logs.
package view

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/naming"
)

// A State is the rules in force, what became of newer ones, and how many servers cannot count.
type State struct {
	Rules      []Rule
	Generation int    // 1 for the first rules
	Version    int64  // of their document; 0 if it has none
	Share      string // of each limit; "" for all of it
	Err        error  // why newer rules are not in force; nil if there are none
	Down       int    // servers whose circuit is open
}

// A Key is a client's key as operators see it.
type Key struct {
	Text  string // as in the log
	ID    string // the same in all processes with the same secret
	Kept  string // as in lists
	Whole bool   // Kept is the key, and not a hash of it
}

// A Client is the counts that a client may have by a rule.
type Client struct {
	Checks []algorithms.Check // one for each count
	Limits []ClientLimit
}

// A ClientLimit is one of the limits that a client may have by a rule.
type ClientLimit struct {
	Tier     string // "" is the rule's own limit
	Override string // "" is no override's
	Ended    bool   // the override has
	Limit    algorithms.Limit
	Checks   []algorithms.Check // one for each key, for Peek if the limit is one
}

// A Rule is a rule's data, and whether it has functions. Fields that are those of a rule
// file have the same names and forms.
type Rule struct {
	Name       string            `json:"name"`
	Match      []string          `json:"match,omitempty"`
	Key        string            `json:"key"`
	Limit      Limits            `json:"limit"`
	Tiers      map[string]Limits `json:"tiers,omitempty"`
	LimitsFor  bool              `json:"limits_for,omitempty"`
	Overrides  int               `json:"overrides,omitempty"` // how many
	Cost       int64             `json:"cost"`
	Costs      map[string]int64  `json:"costs,omitempty"`
	CostFor    bool              `json:"cost_for,omitempty"`
	ChargeOn   []any             `json:"charge_on,omitempty"`
	Ban        *Ban              `json:"ban,omitempty"`
	Fail       string            `json:"fail"`
	Shadow     bool              `json:"shadow,omitempty"`
	Enforce    float64           `json:"enforce,omitempty"`
	Hidden     bool              `json:"hidden,omitempty"`
	RetryAfter string            `json:"retry_after,omitempty"`
	Sync       string            `json:"sync,omitempty"`
	Note       string            `json:"note,omitempty"`

	Overridden []Override `json:"overridden,omitempty"` // the first of Overrides, for operators

	Values int  `json:"-"` // plain values that name a client
	Secret bool `json:"-"` // they are not shown
}

// MaxOverrides is how many overrides of a rule are shown.
const MaxOverrides = 20

// An Override is the limits of one client.
type Override struct {
	Client string    `json:"client"` // its key, as in the log
	Limit  Limits    `json:"limit"`
	Until  time.Time `json:"until,omitzero"`
	Ended  bool      `json:"ended,omitempty"`
	Note   string    `json:"note,omitempty"`
}

// A Ban is a rule's.
type Ban struct {
	After  int64  `json:"after"`
	Within string `json:"within"`
	For    string `json:"for"`
}

// Limits are the texts of limits that a client has together: in JSON a text, or a list of
// several, as in a rule file.
type Limits []string

// LimitsOf returns the texts of limits.
func LimitsOf(limits []algorithms.Limit) (all Limits) {
	for _, l := range limits {
		all = append(all, Limit(l))
	}
	return all
}

// StatusesOf returns statuses, of which several in a row are a range, as in a rule file.
func StatusesOf(statuses []int) (all []any) {
	sorted := slices.Sorted(slices.Values(statuses))
	for len(sorted) > 0 {
		n := 1
		for n < len(sorted) && sorted[n] == sorted[0]+n {
			n++
		}
		if n < 3 {
			all, sorted = append(all, sorted[0]), sorted[1:]
		} else {
			all, sorted = append(all, fmt.Sprintf("%d-%d", sorted[0], sorted[n-1])), sorted[n:]
		}
	}
	return all
}

// MarshalJSON implements [json.Marshaler].
func (l Limits) MarshalJSON() ([]byte, error) {
	if len(l) == 1 {
		return json.Marshal(l[0])
	}
	return json.Marshal([]string(l))
}

// String is the texts with commas between them.
func (l Limits) String() string { return strings.Join(l, ", ") }

// Limit is the text of a limit, its algorithm included.
func Limit(l algorithms.Limit) string {
	if l.Rate < 0 {
		return "unlimited"
	}
	l.Algorithm = algorithms.Algorithm(naming.Limit(l).Number())
	return l.String()
}

// Span is a duration in the form of a limit's period: "15m", "30d".
func Span(d time.Duration) string {
	const day = 24 * time.Hour
	if d > day && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	return strings.TrimPrefix(algorithms.Limit{Rate: 1, Period: d}.String(), "1/")
}

// spans are the forms of durations, as in rules.schema.json.
var spans = regexp.MustCompile(`^((([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+|[0-9]+d)$`)

// ParseSpan reads what Span writes. The error says what to write.
func ParseSpan(text string) (time.Duration, error) {
	if !spans.MatchString(text) {
		return 0, fmt.Errorf("%.64q is not a duration; write it with its unit, such as 90s, 15m, 1h30m or 30d", text)
	}
	l, err := algorithms.ParseLimit("1/" + text) // which knows days, and bounds them
	if err != nil {
		return 0, fmt.Errorf("%.64q is too short or too long; write a duration such as 90s, 15m, 1h30m or 30d", text)
	}
	return l.Period, nil
}

// Snake spells a field of Go as a document does: charge_on for ChargeOn.
func Snake(field string) string {
	var b strings.Builder
	for i, c := range field {
		if 'A' <= c && c <= 'Z' {
			if i > 0 {
				b.WriteByte('_')
			}
			c += 'a' - 'A'
		}
		b.WriteRune(c)
	}
	return b.String()
}

// Each returns the errors that [errors.Join] joined, at any depth; none if err is nil.
func Each(err error) (all []error) {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || !strings.Contains(err.Error(), "\n") { // made by fmt.Errorf with several %w
		return []error{err}
	}
	for _, err := range joined.Unwrap() {
		all = append(all, Each(err)...)
	}
	return all
}

// Seconds is a duration as a number; null where it never ends.
type Seconds time.Duration

// MarshalJSON implements [json.Marshaler].
func (s Seconds) MarshalJSON() ([]byte, error) {
	if time.Duration(s) == algorithms.Never {
		return []byte("null"), nil
	}
	return json.Marshal(time.Duration(s).Seconds())
}

// String is the duration for people.
func (s Seconds) String() string {
	d := time.Duration(s)
	switch {
	case d == algorithms.Never:
		return "never"
	case d >= 48*time.Hour:
		hours := int64(d.Round(time.Hour) / time.Hour)
		return fmt.Sprintf("%dd%dh", hours/24, hours%24)
	case d >= 10*time.Second:
		d = d.Round(time.Second)
	case d >= 10*time.Millisecond:
		d = d.Round(time.Millisecond)
	}
	return d.String()
}

// Path appends indexes and names to the path of a field: "rules[0].costs", "POST /a".
func Path(path string, parts ...any) string {
	for _, part := range parts {
		name, ok := part.(string)
		switch {
		case !ok:
			path = fmt.Sprintf("%s[%d]", path, part)
		case !plain.MatchString(name):
			path = fmt.Sprintf("%s[%.64q]", path, name)
		case path == "":
			path = name
		default:
			path += "." + name
		}
	}
	return path
}

// plain are the names that need no quotes.
var plain = regexp.MustCompile(`^[A-Za-z0-9_-]{1,65}$`)
