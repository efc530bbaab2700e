package headers

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// maxField is the longest field that is read, in bytes over all its lines.
// Longer ones are ignored: no limiter sends them, and reading costs time.
const maxField = 4 << 10

// appendValues appends the values of a field's lines, without the spaces around
// them. Some proxies join lines with commas; an HTTP date has a comma of its own.
func appendValues(values, lines []string) []string {
	if size(lines) > maxField {
		return values
	}
	for _, line := range lines {
		for line != "" {
			value, rest, comma := strings.Cut(line, ",")
			value = strings.Trim(value, " \t")
			if comma && value != "" && letter(value[0]) {
				second, after, _ := strings.Cut(rest, ",")
				both := strings.Trim(line[:len(line)-len(rest)+len(second)], " \t")
				if _, ok := date(both); ok {
					value, rest = both, after
				}
			}
			if value != "" {
				values = append(values, value)
			}
			line = rest
		}
	}
	return values
}

func size(lines []string) int {
	n := 0
	for _, line := range lines {
		n += len(line)
	}
	return n
}

// number reads digits, with or without a fraction: no sign, no exponent. What
// is too large for a float64 is +Inf.
func number(text string) (float64, bool) {
	whole, fraction, dot := strings.Cut(text, ".")
	if !digits(whole) || dot && !digits(fraction) {
		return 0, false
	}
	n, _ := strconv.ParseFloat(text, 64) // the only possible error is the range
	return n, true
}

func digits(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

func letter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// dates are the forms of a date: ISO 8601, also without seconds as Atlassian sends it, and
// those of HTTP, also with another name for GMT.
var dates = [...]string{time.RFC3339, "2006-01-02T15:04Z07:00", time.RFC1123Z, time.RFC1123, time.RFC850, time.ANSIC}

// date reads a date. What other names of zones mean is not known everywhere.
func date(text string) (time.Time, bool) {
	for _, layout := range dates {
		if t, err := time.ParseInLocation(layout, text, time.UTC); err == nil {
			zone, _ := t.Zone()
			return t, zone == "" || zone == "UTC" || zone == "GMT"
		}
	}
	return time.Time{}, false
}

// longestMeant is how long a server can mean. What is longer was meant in another form, or
// by nobody.
const longestMeant = 366 * 24 * time.Hour

// duration reads how long a value of any field asks to wait from now: a number, a duration
// in the form of Go such as 1m30s, or a date. It is negative for a time that has passed. A
// number below 1e9 (31 years) is seconds; a number from 1e11 on is a Unix time in
// milliseconds; a number between them is a Unix time in seconds.
func duration(text string, now time.Time) (wait time.Duration, ok bool) {
	if n, isNumber := number(text); isNumber {
		switch {
		case n < 1e9:
			wait = seconds(n)
		case n < 1e11:
			wait = until(unix(n), now)
		default:
			wait = until(unix(n/1000), now)
		}
	} else if d, err := time.ParseDuration(text); err == nil && digits(text[:1]) {
		wait = d
	} else if t, isDate := date(text); isDate {
		wait = until(t, now)
	} else {
		return 0, false
	}
	return wait, wait <= longestMeant
}

// until is the time from now to t. The zero now means the clock's.
func until(t, now time.Time) time.Duration {
	if now.IsZero() {
		return time.Until(t)
	}
	return t.Sub(now)
}

// seconds returns n seconds, or the longest duration if n is longer.
func seconds(n float64) time.Duration {
	if n >= math.MaxInt64/1e9 {
		return math.MaxInt64
	}
	return time.Duration(math.Ceil(n * 1e9))
}

func secondsCeil(d time.Duration) int64 {
	seconds := int64(d / time.Second)
	if d%time.Second > 0 {
		seconds++
	}
	return seconds
}

// unix returns the Unix time n, in seconds, but none beyond the year 5138.
func unix(n float64) time.Time {
	whole, fraction := math.Modf(min(n, 1e11))
	return time.Unix(int64(whole), int64(fraction*1e9))
}

// unixCeil returns the first whole Unix second that is not before t+d.
func unixCeil(t time.Time, d time.Duration) int64 {
	micros := t.UnixMicro() + d.Microseconds()
	seconds := micros / 1e6
	if micros%1e6 > 0 {
		seconds++
	}
	return seconds
}
