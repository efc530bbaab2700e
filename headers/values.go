package headers

import (
	"math"
	"net/http"
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
				date := line[:len(line)-len(rest)+len(second)]
				if _, ok := httpDate(date); ok {
					value, rest = strings.Trim(date, " \t"), after
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

func httpDate(text string) (time.Time, bool) {
	t, err := http.ParseTime(strings.Trim(text, " \t"))
	return t, err == nil
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
