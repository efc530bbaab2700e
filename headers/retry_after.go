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
// If Retry-After is already set, in any form that [RetryAfter] reads, the longer wait is
// kept. If
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
		var room [4]string
		there, _ := longestOf(appendValues(room[:0], lines), time.Time{})
		seconds = max(seconds, secondsCeil(there))
	}
	if text := strconv.FormatInt(seconds, 10); len(lines) != 1 || lines[0] != text {
		h[field.RetryAfter] = []string{text}
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
// request again; false if the response does not say. RetryAfter reads only headers. It
// ignores values that do not parse, waits of more than a year and fields longer than
// 4 KiB. It uses the first of these that says how long:
//
//  1. Retry-After.
//  2. RateLimit, in the syntax of draft-ietf-httpapi-ratelimit-headers-11: t of
//     the policies with r=0.
//  3. X-RateLimit-Reset where X-RateLimit-Remaining is 0. The two may also be
//     named X-Rate-Limit-… or RateLimit-…, and may end in -Requests or -Tokens.
//
// If a field has several values, in several lines or joined with commas as some
// proxies do, the longest wait counts.
//
// Retry-After and the resets have the same forms: seconds from now, a Unix time in seconds
// or milliseconds, a date in the form of ISO 8601 or HTTP, or a duration in the form of Go,
// such as 1m30s. A number below 1e9 (31 years) is seconds from now, and a number from 1e11
// on is a Unix time in milliseconds. A number between them is a Unix time in seconds.
// Fractions of seconds count.
//
// A point in time is compared with the response's Date if there is one, else with the
// clock. 0, or a time in the past, gives way to the next of the three. If none of them has
// more, it counts as one second, because a denial cannot mean "at once". In a response from
// a cache, whose Age is above 0, only Retry-After counts.
func RetryAfter(resp *http.Response) (wait time.Duration, ok bool) {
	h := resp.Header
	now, _ := date(h.Get("Date"))
	for _, read := range [...]func() (time.Duration, bool){
		func() (time.Duration, bool) { return longestOf(appendValues(nil, h[field.RetryAfter]), now) },
		func() (time.Duration, bool) { return longestExhausted(h[field.RateLimit]) },
		func() (time.Duration, bool) { return longestReset(h, now) },
	} {
		longest, found := read()
		if wait, ok = max(wait, longest), ok || found; wait > 0 || cached(h) {
			break
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

// longestOf returns the longest wait of values, which is 0 if all their times have passed.
func longestOf(values []string, now time.Time) (longest time.Duration, found bool) {
	for _, text := range values {
		if wait, ok := duration(text, now); ok {
			longest, found = max(longest, wait), true
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
		if wait := seconds(float64(p.seconds)); p.units == 0 && p.seconds != absent && wait <= longestMeant {
			longest, found = max(longest, wait), true
		}
	}
	return longest, found
}

// longestReset returns the longest wait of X-RateLimit, and fields like it, that
// have nothing left.
func longestReset(h http.Header, now time.Time) (longest time.Duration, found bool) {
	for _, prefix := range [...]string{"X-Ratelimit-", "X-Rate-Limit-", "Ratelimit-"} {
		for _, suffix := range [...]string{"", "-Requests", "-Tokens"} { // with a suffix, as OpenAI
			for _, q := range appendQuotas(nil, h[prefix+"Limit"+suffix], h[prefix+"Remaining"+suffix], h[prefix+"Reset"+suffix], now) {
				if q.remaining == 0 && q.resets {
					longest, found = max(longest, q.resetAfter), true
				}
			}
		}
	}
	return longest, found
}
