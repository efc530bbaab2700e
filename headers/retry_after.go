package headers

import (
	"net/http"
	"strconv"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/field"
)

// SetRetryAfter sets Retry-After on the response to a denied request. Its value is the
// seconds until the request fits the limits of all rules that deny it, rounded up and
// at least 1. The middleware calls it on every denial, whatever the [Writer] is.
//
// For a calendar window, the value is at most an hour, because the limit may be raised
// long before a month ends; the reset fields are exact.
//
// If Retry-After is already set, in seconds or as a date, the longer wait is kept. If
// waiting never helps, because the request costs more than a rule can hold, Retry-After is
// removed. On an admitted request, SetRetryAfter does nothing.
func SetRetryAfter(h http.Header, d algorithms.Decision) { setRetryAfter(h, d) }

// setRetryAfter returns what Retry-After says now, or absent if it set none.
func setRetryAfter(h http.Header, d algorithms.Decision) int64 { return setWait(h, d, retryAfter(d)) }

// setWait is setRetryAfter with the wait that a denial asks for.
func setWait(h http.Header, d algorithms.Decision, wait time.Duration) int64 {
	if d.Allowed {
		return absent
	}
	if wait == algorithms.Never {
		delete(h, field.RetryAfter)
		return absent
	}
	seconds := waitSeconds(wait)
	lines := h[field.RetryAfter]
	if len(lines) > 0 {
		there, _ := longestRetryAfter(lines, time.Time{})
		seconds = max(seconds, secondsCeil(there))
	}
	var room [20]byte
	if text := strconv.AppendInt(room[:0], seconds, 10); !is(lines, text) {
		h[field.RetryAfter] = []string{string(text)}
	}
	return seconds
}

// longestAsked is how long a client whose calendar window is used up is asked to wait at
// most: its limit may be raised long before its month ends.
const longestAsked = time.Hour

// retryAfter is the longest wait of the rules that deny.
func retryAfter(d algorithms.Decision) (longest time.Duration) {
	for i := range d.Results {
		r := &d.Results[i]
		if !r.Denies() {
			continue
		}
		wait := r.RetryAfter
		if r.Check.Limit.Calendar != "" && wait != algorithms.Never {
			wait = min(wait, longestAsked)
		}
		longest = max(longest, wait)
	}
	return longest
}

// waitSeconds returns a wait in whole seconds, at least 1: some clients take 0 for "not
// given" and come back at once.
func waitSeconds(wait time.Duration) int64 { return max(secondsCeil(wait), 1) }

// RetryAfter returns how long a response asks the client to wait before it sends such a
// request again; false if the response does not say. RetryAfter reads only headers, and
// ignores values that do not parse and fields longer than 4 KiB. It uses the first of
// these that says how long:
//
//  1. Retry-After, in seconds or as an HTTP date.
//  2. RateLimit, in the syntax of draft-ietf-httpapi-ratelimit-headers-11: t of
//     the policies with r=0.
//  3. X-RateLimit-Reset where X-RateLimit-Remaining is 0. The two may also be
//     named X-Rate-Limit-… or RateLimit-…. The reset may be in seconds from now, a Unix
//     time in seconds or milliseconds, or a date in the form of ISO 8601 or HTTP.
//
// If a field has several values, in several lines or joined with commas as some
// proxies do, the longest wait counts.
//
// In a reset, a number below 1e9 (31 years) is seconds from now, and a number from 1e11
// on is a Unix time in milliseconds. A number between them is a Unix time in seconds.
// Fractions of seconds count.
//
// A point in time is compared with the response's Date if there is one, else with the
// clock. 0, or a time in the past, counts as one second, because a denial cannot mean
// "at once". In a response from a cache, whose Age is above 0, only Retry-After counts.
func RetryAfter(resp *http.Response) (time.Duration, bool) {
	now, _ := httpDate(resp.Header.Get("Date"))
	wait, ok := longestRetryAfter(resp.Header[field.RetryAfter], now)
	if !ok && !cached(resp.Header) {
		if wait, ok = longestExhausted(resp.Header[field.RateLimit]); !ok {
			wait, ok = longestReset(resp.Header, now)
		}
	}
	if ok && wait <= 0 {
		wait = time.Second
	}
	return wait, ok
}

func cached(h http.Header) bool {
	for _, text := range appendValues(nil, h["Age"]) {
		if age, ok := number(text); ok && age > 0 {
			return true
		}
	}
	return false
}

// longestRetryAfter returns the longest wait of Retry-After lines, which is 0 if
// all their times have passed.
func longestRetryAfter(lines []string, now time.Time) (longest time.Duration, found bool) {
	var room [4]string
	for _, text := range appendValues(room[:0], lines) {
		if n, ok := number(text); ok {
			longest, found = max(longest, seconds(n)), true
		} else if t, ok := httpDate(text); ok {
			longest, found = max(longest, until(t, now)), true
		}
	}
	return longest, found
}

// longestExhausted returns the longest wait for the policies of RateLimit that
// have nothing left. The draft demands that a field is ignored if anything in it
// is malformed.
func longestExhausted(lines []string) (longest time.Duration, found bool) {
	policies, _ := parseItems(lines, 'r', 't')
	for _, p := range policies {
		if p.units == 0 && p.seconds != absent {
			longest, found = max(longest, seconds(float64(p.seconds))), true
		}
	}
	return longest, found
}

// longestReset returns the longest wait of X-RateLimit, and fields like it, that
// have nothing left.
func longestReset(h http.Header, now time.Time) (longest time.Duration, found bool) {
	for _, family := range [...]string{"X-Ratelimit-", "X-Rate-Limit-", "Ratelimit-"} {
		for _, q := range appendQuotas(nil, h[family+"Limit"], h[family+"Remaining"], h[family+"Reset"], now) {
			if q.remaining == 0 {
				longest, found = max(longest, q.resetAfter), true
			}
		}
	}
	return longest, found
}
