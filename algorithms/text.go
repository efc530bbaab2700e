package algorithms

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// periods are the words that may stand for a period of one unit.
var periods = map[string]time.Duration{
	"s": time.Second, "second": time.Second,
	"m": time.Minute, "min": time.Minute, "minute": time.Minute,
	"h": time.Hour, "hour": time.Hour,
}

// inCalendar are the words that need a time zone, and periods of about that length.
var inCalendar = map[string]string{
	"d": "1d", "day": "1d", "week": "7d", "month": "30d", "quarter": "90d", "year": "365d",
}

// ParseLimit reads the text form of a limit and validates it:
//
//	rate "/" period [ "burst" n ] [ algorithm ]
//	rate "/" calendar
//	n "in flight"
//
// The period is a duration ("1m", "1h30m", "30d") or a unit ("s", "min", "minute"). The
// calendar is day, week, month, quarter or year and a time zone, as in
// "month@Europe/Berlin", or "month:15@UTC" for months that begin on the 15th. Spaces
// around the slash are allowed. The default algorithm is token_bucket with a burst, and
// sliding_window without. White space other than plain spaces is an error.
func ParseLimit(text string) (Limit, error) {
	if strings.ContainsFunc(text, func(r rune) bool { return unicode.IsSpace(r) && r != ' ' }) {
		return Limit{}, fmt.Errorf("%.64q: write it on one line, with plain spaces, as %.64q", text, strings.Join(strings.Fields(text), " "))
	}
	l, err := parseLimit(text)
	if err != nil && !errors.Is(err, errUnknownAlgorithm) {
		if areLimits(text) {
			return Limit{}, fmt.Errorf("limit %q: several limits; write them as a list, in a file [%s]", text, text)
		}
		if meant, ok := meantLimit(text); ok {
			return Limit{}, fmt.Errorf("limit %q: %w; write it as %s", text, err, meant)
		}
		return Limit{}, fmt.Errorf("limit %q: %w; write it as \"100/1m\", \"10/s burst 20\" or \"5/1m fixed_window\"", text, err)
	}
	if err == nil {
		err = l.Validate()
	}
	if err != nil {
		if meant, ok := meantLimit(text); ok {
			err = fmt.Errorf("limit %q: %w; write it as %s", text, err, meant)
		}
		return Limit{}, err
	}
	return l, nil
}

// areLimits reports whether text is several limits with commas between them.
func areLimits(text string) bool {
	parts := strings.Split(text, ", ")
	return len(parts) > 1 && !slices.ContainsFunc(parts, func(part string) bool {
		_, err := parseLimit(part)
		return err != nil
	})
}

func parseLimit(text string) (Limit, error) {
	if strings.TrimSpace(text) == "" {
		return Limit{}, errors.New("empty")
	}
	if l, ok, err := parseInFlight(text); ok {
		return l, err
	}
	rate, rest, found := strings.Cut(text, "/")
	if !found {
		return Limit{}, errors.New("no period")
	}
	words := strings.Fields(rest)
	if len(words) == 0 {
		words = []string{""}
	}
	var l Limit
	var err error
	if l.Rate, err = parseUnits("rate", strings.TrimSpace(rate)); err != nil {
		return Limit{}, err
	}
	if strings.Contains(words[0], "@") {
		l.Calendar = words[0]
	} else if l.Period, err = parsePeriod(words[0]); err != nil {
		return Limit{}, err
	}
	if words = words[1:]; l.Calendar != "" && len(words) > 0 && words[0] == "burst" {
		return Limit{}, errors.New("a calendar window has no burst; limit bursts by another rule, such as 5/s")
	}
	if len(words) > 0 && words[0] == "burst" {
		if len(words) == 1 {
			return Limit{}, errors.New("burst without a number")
		}
		if l.Burst, err = parseUnits("burst", words[1]); err != nil {
			return Limit{}, err
		}
		if l.Burst == 0 {
			return Limit{}, errors.New("burst must be at least 1: leave it out to make it the rate")
		}
		l.Algorithm = TokenBucket
		words = words[2:]
	}
	switch len(words) {
	case 0:
		return l, nil
	case 1:
		err = l.Algorithm.UnmarshalText([]byte(words[0]))
		return l, err
	}
	return Limit{}, fmt.Errorf("unexpected %q", words[1])
}

// inFlightText is behind the number in the text of such a limit.
const inFlightText = " in flight"

// parseInFlight reads the text form "20 in flight"; false if the text is another's.
func parseInFlight(text string) (l Limit, ok bool, err error) {
	words := strings.Fields(text)
	if len(words) != 3 || words[1] != "in" || words[2] != "flight" {
		return Limit{}, false, nil
	}
	n, err := parseUnits("number", words[0])
	return MaxInFlight(n), true, err
}

// What people write around the numbers of a limit.
var (
	grouped = regexp.MustCompile(`\b[0-9]{1,3}([,_][0-9]{3})+\b`)
	filler  = regexp.MustCompile(`\b(with|an?|of|r|requests?|tokens?)\b|[=(),]|:( |$)`)
	atOnce  = regexp.MustCompile(`^ *([0-9]+) +(?:in[-_ ]*flight|concurrent|(?:in )?parallel|at once|simultaneous) *$`)
	spelled = regexp.MustCompile(`/ *([0-9]*) *(?:(s)(?:ec(?:ond)?s?)?|(m)(?:in(?:ute)?s?)?|(h)(?:ours?)?)\b`)
)

// inFewWords returns a text in lower case, with "/" for "per", "1m" for "1 minute", and
// without filler and marks for thousands.
func inFewWords(text string) string {
	text = strings.Replace(strings.ToLower(text), " per ", "/", 1)
	text = grouped.ReplaceAllStringFunc(text, strings.NewReplacer(",", "", "_", "").Replace)
	return spelled.ReplaceAllString(filler.ReplaceAllString(text, " "), "/$1$2$3$4")
}

// meantLimit corrects a text that is nearly a limit: one in words, of requests in flight, with marks for
// thousands, without a unit of its period or the time zone of its calendar, or with the
// algorithm before the burst.
func meantLimit(text string) (string, bool) {
	few := inFewWords(text)
	if m := atOnce.FindStringSubmatch(few); m != nil {
		return strconv.Quote(m[1] + inFlightText), true
	}
	rate, rest, _ := strings.Cut(few, "/")
	rate = strings.TrimSpace(rate)
	words := strings.Fields(rest)
	if len(words) == 0 {
		return "", false
	}
	if fixed := inCalendar[words[0]]; fixed != "" {
		unit := cmp.Or(map[string]string{"d": "day"}[words[0]], words[0])
		return fmt.Sprintf("\"%s/%s\" for a period of %s, or \"%[1]s/%[4]s@UTC\" for each %[4]s of a time zone", rate, fixed, fixed, unit), true
	}
	if _, err := parseUnits("", words[0]); err == nil {
		words[0] += "s"
	}
	if len(words) == 4 && words[2] == "burst" {
		words = []string{words[0], words[2], words[3], words[1]}
	}
	l, err := parseLimit(rate + "/" + strings.Join(words, " "))
	if err != nil || l.Validate() != nil {
		return "", false
	}
	meant := strconv.Quote(l.String())
	if _, period, _ := strings.Cut(text, "/"); strings.HasSuffix(strings.TrimSpace(period), "M") {
		meant += fmt.Sprintf(", or for a month as \"%d/month@UTC\"", l.Rate)
	}
	return meant, true
}

func parseUnits(what, text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || text[0] == '+' {
		return 0, fmt.Errorf("%s %q is not a whole number", what, text)
	}
	return n, nil
}

func parsePeriod(text string) (time.Duration, error) {
	if d, ok := periods[text]; ok {
		return d, nil
	}
	if inCalendar[text] != "" {
		return 0, fmt.Errorf("period %q has two meanings", text)
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseInt(days, 10, 64); err == nil && n >= 0 && n <= int64(maxDays) && days[0] != '+' {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil || text[0] == '+' {
		return 0, fmt.Errorf("period %q is not a duration", text)
	}
	return d, nil
}

const maxDays = time.Duration(1<<63-1) / (24 * time.Hour)

// String returns the text form that [ParseLimit] reads.
func (l Limit) String() string {
	b := make([]byte, 0, 48)
	b = strconv.AppendInt(b, l.Rate, 10)
	if l == MaxInFlight(l.Rate) {
		return string(append(b, inFlightText...))
	}
	b = append(b, '/')
	if l.Calendar != "" {
		b = append(b, l.Calendar...)
	} else {
		b = appendPeriod(b, l.Period)
	}
	if l.Burst != 0 {
		b = strconv.AppendInt(append(b, " burst "...), l.Burst, 10)
	}
	if l.Algorithm != 0 {
		b = append(append(b, ' '), l.Algorithm.String()...)
	}
	return string(b)
}

// MarshalText returns the text form.
func (l Limit) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads the text form as [ParseLimit] does. If it fails, l is unchanged.
func (l *Limit) UnmarshalText(text []byte) error {
	parsed, err := ParseLimit(string(text))
	if err == nil {
		*l = parsed
	}
	return err
}

// appendPeriod appends the period in the largest unit that divides it: "1m",
// "90s", "24h". It is part of the keys in Redis, so equal periods must read the
// same and different ones must not.
func appendPeriod(b []byte, d time.Duration) []byte {
	units := [...]struct {
		length time.Duration
		name   string
	}{{time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}, {time.Microsecond, "us"}, {1, "ns"}}
	for _, u := range units {
		if d%u.length == 0 {
			return append(strconv.AppendInt(b, int64(d/u.length), 10), u.name...)
		}
	}
	return b // not reached: every duration is whole nanoseconds
}
