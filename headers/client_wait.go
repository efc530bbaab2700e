package headers

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Wait returns how long a response asks the client to wait before it sends
// another such request, and false if it does not say. It looks only at headers;
// what does not parse is passed over. The first of these that says something
// counts:
//
//  1. Retry-After, in seconds or as an HTTP date.
//  2. RateLimit, in the syntax of draft-ietf-httpapi-ratelimit-headers-11: the
//     longest t of the policies with r=0.
//  3. X-RateLimit-Reset where X-RateLimit-Remaining is 0, or the same two as
//     X-Rate-Limit-… or RateLimit-…. The reset may be in seconds from now, a Unix
//     time in seconds or milliseconds, or a date in the form of ISO 8601 or HTTP.
//
// A number below 1e9 (31 years) is seconds from now; from 1e11 on it is
// milliseconds. Fractions of seconds count.
//
// A point in time is compared with the response's Date if there is one, else
// with the clock. A server that denies cannot mean at once: 0, or a time that
// has passed, counts as one second. In a response from a cache (Age) only
// Retry-After counts.
func Wait(resp *http.Response) (time.Duration, bool) {
	now, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	wait, ok := retryAfter(resp.Header, now)
	if age, _ := number(resp.Header.Get("Age")); !ok && age == 0 {
		if wait, ok = exhausted(resp.Header.Values("RateLimit")); !ok {
			wait, ok = reset(resp.Header, now)
		}
	}
	if ok && wait <= 0 {
		wait = time.Second
	}
	return wait, ok
}

// retryAfter is the longest wait, if there are several lines; 0 for times that
// have passed.
func retryAfter(h http.Header, now time.Time) (longest time.Duration, found bool) {
	for _, text := range h.Values("Retry-After") {
		wait, ok := retryAfterValue(text, now)
		longest, found = max(longest, wait), found || ok
	}
	return longest, found
}

func retryAfterValue(text string, now time.Time) (time.Duration, bool) {
	text = strings.Trim(text, " \t")
	if n, ok := number(text); ok {
		return seconds(n), true
	}
	if t, err := http.ParseTime(text); err == nil {
		return t.Sub(now), true
	}
	return 0, false
}

// exhausted is the longest wait for the policies of RateLimit that have nothing
// left. A field in which anything is malformed is ignored, as the draft demands.
func exhausted(lines []string) (longest time.Duration, found bool) {
	p := fieldParser{strings.Trim(strings.Join(lines, ","), " ")}
	for p.rest != "" {
		policy, ok := p.item('r', 't')
		if !ok || !p.comma() {
			return 0, false
		}
		if policy.units == 0 && policy.seconds != absent {
			longest, found = max(longest, seconds(float64(policy.seconds))), true
		}
	}
	return longest, found
}

func reset(h http.Header, now time.Time) (time.Duration, bool) {
	for _, family := range []string{"X-RateLimit-", "X-Rate-Limit-", "RateLimit-"} {
		if left, ok := number(h.Get(family + "Remaining")); !ok || left > 0 {
			continue
		}
		if wait, ok := resetValue(h.Get(family+"Reset"), now); ok {
			return wait, true
		}
	}
	return 0, false
}

func resetValue(text string, now time.Time) (time.Duration, bool) {
	if n, ok := number(text); ok {
		switch {
		case n < 1e9:
			return seconds(n), true
		case n < 1e11:
			return unix(n).Sub(now), true
		default:
			return unix(n / 1000).Sub(now), true
		}
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04Z07:00", http.TimeFormat} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.Sub(now), true
		}
	}
	return 0, false
}

// number reads digits, with or without a fraction: no sign, no exponent.
func number(text string) (float64, bool) {
	whole, fraction, dot := strings.Cut(text, ".")
	if !digits(whole) || dot && !digits(fraction) {
		return 0, false
	}
	n, _ := strconv.ParseFloat(text, 64) // all that can be wrong is the range: +Inf
	return n, true
}

func digits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

// seconds is a duration; what is too long for one is the longest.
func seconds(n float64) time.Duration {
	if n >= math.MaxInt64/1e9 {
		return math.MaxInt64
	}
	return time.Duration(math.Ceil(n * 1e9))
}

// unix is a Unix time in seconds; what is beyond the year 5138 is then.
func unix(n float64) time.Time {
	whole, fraction := math.Modf(min(n, 1e11))
	return time.Unix(int64(whole), int64(fraction*1e9))
}
