package rulefile

import (
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/view"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// maxText is how many characters a text in a rule may have.
const maxText = 1000

// The forms of numbers, as in rules.schema.json.
var (
	integers = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)
	numbers  = regexp.MustCompile(`^-?([0-9]+\.?|[0-9]*\.[0-9]+)([eE][-+]?[0-9]+)?$`)
	percents = regexp.MustCompile(`^(100(\.0+)?|[0-9]{1,2}(\.[0-9]+)?) ?%$`)
)

// text reads a text. mend ends the error about anything else.
func (d *decoder) text(n *yaml.Node, path, mend string) (string, bool) {
	switch {
	case d.flagged[n]:
		return "", false
	case n.Kind != yaml.ScalarNode || n.Tag != "!!str":
		d.bad(placeOf(n), path, "must be text, got %s; %s", describe(n), mend)
		return "", false
	case utf8.RuneCountInString(n.Value) > maxText:
		d.bad(placeOf(n), path, "must have at most %d characters, got %d", maxText, utf8.RuneCountInString(n.Value))
		return "", false
	}
	return n.Value, true
}

// quoted reads a text that may need quotes to be one.
func (d *decoder) quoted(n *yaml.Node, path string) string {
	text, _ := d.text(n, path, "put it in quotes")
	return text
}

func (d *decoder) integer(n *yaml.Node, path string) (int64, bool) {
	if d.flagged[n] {
		return 0, false
	}
	if n.Kind != yaml.ScalarNode || n.Tag != "!!int" || !integers.MatchString(n.Value) {
		d.bad(placeOf(n), path, "must be a whole number, in digits and without quotes, got %s", describe(n))
		return 0, false
	}
	whole, err := strconv.ParseInt(n.Value, 10, 64)
	if err != nil {
		d.bad(placeOf(n), path, "%s is too large", cut(n.Value))
	}
	return whole, err == nil
}

// count reads a whole number that is at least 1, or returns 0.
func (d *decoder) count(n *yaml.Node, path string) int64 {
	number, ok := d.integer(n, path)
	if ok && number < 1 {
		d.bad(placeOf(n), path, "must be at least 1, got %d", number)
		return 0
	}
	return number
}

// boolean reads true or false. Other spellings of YAML 1.1, such as yes, are texts.
func (d *decoder) boolean(n *yaml.Node, path string) bool {
	if d.flagged[n] {
		return false
	}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!bool" {
		return strings.EqualFold(n.Value, "true")
	}
	d.bad(placeOf(n), path, "must be true or false, without quotes, got %s", describe(n))
	return false
}

// fraction reads a fraction such as 0.1 or 10%.
func (d *decoder) fraction(n *yaml.Node, path string) float64 {
	const mend = "write a fraction such as 0.1, or a percentage such as 10%"
	switch {
	case d.flagged[n]:
		return 0
	case n.Kind != yaml.ScalarNode:
	case n.Tag == "!!str" && percents.MatchString(n.Value):
		percentage := strings.TrimRight(n.Value, " %")
		fraction, _ := strconv.ParseFloat(percentage+"e-2", 64) // exact, which a division by 100 is not
		return fraction
	case (n.Tag == "!!int" || n.Tag == "!!float") && numbers.MatchString(n.Value):
		fraction, err := strconv.ParseFloat(n.Value, 64)
		switch {
		case err == nil && fraction >= 0 && fraction <= 1:
			return fraction + 0 // which makes 0 of -0
		case fraction > 1 && fraction <= 100:
			d.bad(placeOf(n), path, "must be 0 to 1, got %s; write %s%% for a percentage", n.Value, n.Value)
			return 0
		}
	}
	d.bad(placeOf(n), path, "must be 0 to 1, or 0%% to 100%%, got %s; %s", describe(n), mend)
	return 0
}

// duration reads a duration that is written like the period of a limit.
func (d *decoder) duration(n *yaml.Node, path string) time.Duration {
	text, ok := d.text(n, path, `write a duration with its unit, such as 90s, 15m, 1h30m or 30d`)
	if !ok {
		return 0
	}
	span, err := view.ParseSpan(text)
	if err != nil {
		d.bad(placeOf(n), path, "%w", err)
	}
	return span
}

// limits reads a limit or a list of them; nil if one is wrong.
func (d *decoder) limits(n *yaml.Node, path string) []algorithms.Limit {
	return oneOrMore(d, n, path, "limits, as in [10/s, 100000/month@UTC]", d.limit)
}

func (d *decoder) limit(n *yaml.Node, path string) (l algorithms.Limit, ok bool) {
	text, ok := d.text(n, path, `write a limit as "100/1m", "10/s burst 20" or "5/1m fixed_window"`)
	if !ok {
		return l, false
	}
	if text == unlimited {
		d.bad(placeOf(n), path, `unlimited is for a tier or an override, alone and not in a list; to turn a whole rule off, leave it out or write "shadow: true" in it`)
		return l, false
	}
	if strings.ContainsFunc(text, func(r rune) bool { return unicode.IsSpace(r) && r != ' ' }) {
		d.bad(placeOf(n), path, "%q: write it on one line, with plain spaces, as %q", cut(text), cut(strings.Join(strings.Fields(text), " ")))
		return l, false
	}
	l, err := algorithms.ParseLimit(text)
	if err != nil {
		for _, err := range view.Each(err) {
			d.bad(placeOf(n), path, "%w", err)
		}
	}
	return l, err == nil
}

// unlimited is [ratelimit.Unlimited] in a document.
const unlimited = "unlimited"

// exempting reads limits, or unlimited; nil if there is a mistake.
func (d *decoder) exempting(n *yaml.Node, path string) []algorithms.Limit {
	switch {
	case n.Value != unlimited && strings.EqualFold(n.Value, unlimited):
		d.bad(placeOf(n), path, "write unlimited in small letters")
		return nil
	case n.Value == unlimited && n.Kind == yaml.ScalarNode && !d.flagged[n]:
		return ratelimit.Unlimited()
	}
	return d.limits(n, path)
}

// list returns the items of a list, which must not be empty.
func (d *decoder) list(n *yaml.Node, path, of string) ([]*yaml.Node, bool) {
	switch {
	case d.flagged[n]:
		return nil, false
	case n.Kind == yaml.ScalarNode && n.Tag != "!!null":
		d.bad(placeOf(n), path, "must be a list of %s, got %s; put it in [ ]", of, describe(n))
		return nil, false
	case n.Kind != yaml.SequenceNode:
		d.bad(placeOf(n), path, "must be a list of %s, got %s", of, describe(n))
		return nil, false
	case len(n.Content) == 0:
		d.bad(placeOf(n), path, "is empty; write a list of %s", of)
		return nil, false
	}
	return n.Content, true
}

// items reads the items of a list, but for those with a mistake.
func items[T any](d *decoder, n *yaml.Node, path, of string, read func(*yaml.Node, string) (T, bool)) (all []T) {
	nodes, _ := d.list(n, path, of)
	for i, item := range nodes {
		at := view.Path(path, i)
		d.spots[at] = spot{placeOf(item), at}
		if value, ok := read(item, at); ok {
			all = append(all, value)
		}
	}
	return all
}

// oneOrMore reads what may be a list of several; nil if one is wrong.
func oneOrMore[T any](d *decoder, n *yaml.Node, path, of string, read func(*yaml.Node, string) (T, bool)) []T {
	if n.Kind == yaml.SequenceNode {
		if all := items(d, n, path, of, read); len(all) == len(n.Content) {
			return all
		}
	} else if one, ok := read(n, path); ok {
		return []T{one}
	}
	return nil
}

// mapping reports whether n is a mapping. It must not be empty.
func (d *decoder) mapping(n *yaml.Node, path, of string) bool {
	switch {
	case d.flagged[n]:
		return false
	case n.Kind != yaml.MappingNode:
		d.bad(placeOf(n), path, "must be a mapping: %s; got %s", of, describe(n))
		return false
	case len(n.Content) == 0:
		d.bad(placeOf(n), path, "is empty; write %s", of)
		return false
	}
	return true
}

func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Tag == "!!null":
		return "nothing"
	case n.Tag == "!!int", n.Tag == "!!float":
		return "the number " + cut(n.Value)
	case n.Tag == "!!bool":
		return cut(n.Value)
	case n.Tag == "!!timestamp":
		return "the date " + cut(n.Value)
	}
	return strconv.Quote(cut(n.Value))
}

func cut(s string) string {
	if runes := []rune(s); len(runes) > 64 {
		return string(runes[:64]) + "…"
	}
	return s
}
