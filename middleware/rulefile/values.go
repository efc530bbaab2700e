package rulefile

import (
	"regexp"
	"strconv"
	"strings"
	"time"
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
func (v value) text(mend string) (string, bool) {
	if !v.is(v.Kind == yaml.ScalarNode && v.Tag == "!!str", "must be text,", "; "+mend) {
		return "", false
	}
	n := utf8.RuneCountInString(v.Value)
	if n > maxText {
		v.bad("must have at most %d characters, got %d", maxText, n)
	}
	return v.Value, n <= maxText
}

// quoted reads a text that may need quotes to be one.
func (v value) quoted() string {
	text, _ := v.text("put it in quotes")
	return text
}

func (v value) integer() (int64, bool) {
	if !v.is(v.Kind == yaml.ScalarNode && v.Tag == "!!int" && integers.MatchString(v.Value), "must be a whole number, in digits and without quotes,", "") {
		return 0, false
	}
	whole, err := strconv.ParseInt(v.Value, 10, 64)
	if err != nil {
		v.bad("%s is too large", cut(v.Value))
	}
	return whole, err == nil
}

// count reads a whole number that is at least 1, or returns 0.
func (v value) count() int64 {
	number, ok := v.integer()
	if ok && number < 1 {
		v.bad("must be at least 1, got %d", number)
		return 0
	}
	return number
}

// boolean reads true or false. Other spellings of YAML 1.1, such as yes, are texts.
func (v value) boolean() bool {
	return v.is(v.Kind == yaml.ScalarNode && v.Tag == "!!bool", "must be true or false, without quotes,", "") && strings.EqualFold(v.Value, "true")
}

// fraction reads a fraction such as 0.1 or 10%.
func (v value) fraction() (fraction float64) {
	form, ok := v.Value, v.Kind == yaml.ScalarNode
	switch {
	case ok && v.Tag == "!!str" && percents.MatchString(form):
		form = strings.TrimRight(form, " %") + "e-2" // exact, which a division by 100 is not
	case ok && v.Tag != "!!str" && numbers.MatchString(form):
	default:
		ok = false
	}
	if ok {
		fraction, _ = strconv.ParseFloat(form, 64)
	}
	if fraction > 1 && fraction <= 100 && !v.d.flagged[v.Node] {
		v.bad("must be 0 to 1, got %s; write %s%% for a percentage", v.Value, v.Value)
	} else if v.is(ok && fraction >= 0 && fraction <= 1, "must be 0 to 1, or 0% to 100%,", "; write a fraction such as 0.1, or a percentage such as 10%") {
		return fraction + 0 // which makes 0 of -0
	}
	return 0
}

// duration reads a duration that is written like the period of a limit.
func (v value) duration() (span time.Duration) {
	if text, ok := v.text("write a duration with its unit, such as 90s, 15m, 1h30m or 30d"); ok {
		var err error
		if span, err = view.ParseSpan(text); err != nil {
			v.bad("%w", err)
		}
	}
	return span
}

// limits reads a limit or a list of them; nil if one is wrong.
func (v value) limits() []algorithms.Limit {
	return oneOrMore(v, "limits, as in [10/s, 100000/month@UTC]", value.limit)
}

func (v value) limit() (l algorithms.Limit, ok bool) {
	text, ok := v.text(`write a limit as "100/1m", "10/s burst 20" or "5/1m fixed_window"`)
	if !ok {
		return l, false
	}
	if text == unlimited {
		v.bad(`unlimited is for a tier or an override, alone and not in a list; to turn a whole rule off, leave it out or write "shadow: true" in it`)
		return l, false
	}
	l, err := algorithms.ParseLimit(text)
	for _, err := range view.Each(err) {
		v.bad("%w", err)
	}
	return l, err == nil
}

// unlimited is [ratelimit.Unlimited] in a document.
const unlimited = "unlimited"

// exempting reads limits, or unlimited; nil if there is a mistake.
func (v value) exempting() []algorithms.Limit {
	switch {
	case v.Value == unlimited && v.Kind == yaml.ScalarNode && !v.d.flagged[v.Node]:
		return ratelimit.Unlimited()
	case v.Value != unlimited && strings.EqualFold(v.Value, unlimited):
		v.bad("write unlimited in small letters")
		return nil
	}
	return v.limits()
}

// list reads the items of a list, which must not be empty, but for those with a mistake.
func list[T any](v value, of string, read func(value) (T, bool)) (all []T) {
	mend := ""
	if v.Kind == yaml.ScalarNode && v.Tag != "!!null" {
		mend = "; put it in [ ]"
	}
	if !v.is(v.Kind == yaml.SequenceNode, "must be a list of "+of+",", mend) {
		return nil
	}
	if len(v.Content) == 0 {
		v.bad("is empty; write a list of %s", of)
	}
	v.items(func(item value) {
		if one, ok := read(item); ok {
			all = append(all, one)
		}
	})
	return all
}

// oneOrMore reads what may be a list of several; nil if one is wrong.
func oneOrMore[T any](v value, of string, read func(value) (T, bool)) []T {
	if v.Kind == yaml.SequenceNode {
		if all := list(v, of, read); len(all) == len(v.Content) {
			return all
		}
	} else if one, ok := read(v); ok {
		return []T{one}
	}
	return nil
}

// mapping reports whether a value is a mapping that is not empty.
func (v value) mapping(of string) bool {
	if !v.is(v.Kind == yaml.MappingNode, "must be a mapping: "+of+";", "") {
		return false
	}
	if len(v.Content) == 0 {
		v.bad("is empty; write %s", of)
	}
	return len(v.Content) > 0
}

func (v value) describe() string {
	switch {
	case v.Kind == yaml.SequenceNode:
		return "a list"
	case v.Kind == yaml.MappingNode:
		return "a mapping"
	case v.Tag == "!!null":
		return "nothing"
	case v.Tag == "!!int", v.Tag == "!!float":
		return "the number " + cut(v.Value)
	case v.Tag == "!!bool":
		return cut(v.Value)
	case v.Tag == "!!timestamp":
		return "the date " + cut(v.Value)
	}
	return strconv.Quote(cut(v.Value))
}

func cut(s string) string {
	if runes := []rune(s); len(runes) > 64 {
		return string(runes[:64]) + "…"
	}
	return s
}
