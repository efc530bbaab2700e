// Package headers tells clients what a rate limiter decided: response headers
// on every response, and the response to a request that was denied. It also has
// the other side: a [Transport] with which a Go client obeys them.
//
// [XRateLimit] is what most clients know; [IETFDraft11] is what the IETF works
// on; [All] sends both. A limiter in front of this one may have set the same
// fields already: the tighter values stay, and nothing is sent twice.
package headers

import (
	"net/http"
	"strconv"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// A Writer sets response headers from a decision, before the handler runs. It
// must be safe for concurrent use.
type Writer func(http.Header, algorithms.Decision)

// None is the Writer that sets nothing.
func None(http.Header, algorithms.Decision) {}

// All returns a Writer that calls the given ones in their order.
func All(writers ...Writer) Writer {
	writers = append([]Writer(nil), writers...)
	return func(h http.Header, d algorithms.Decision) {
		for _, w := range writers {
			w(h, d)
		}
	}
}

// RetryAfter sets Retry-After on the response to a denied request: whole
// seconds until the longest of the denying rules has room, rounded up, at least
// 1. The middleware calls it on every denial, whatever the Writer is.
//
// A later Retry-After that is there already stays, be it in seconds or a date.
// Where waiting never helps, because the request costs more than a rule can
// hold, there is none afterwards. On an admitted request it does nothing.
func RetryAfter(h http.Header, d algorithms.Decision) {
	if d.Allowed {
		return
	}
	wait := d.RetryAfter()
	if wait == algorithms.Never {
		delete(h, retryAfterKey)
		return
	}
	seconds := waitSeconds(wait)
	if there, ok := retryAfterOf(h); !ok || there < seconds {
		h[retryAfterKey] = []string{strconv.FormatInt(seconds, 10)}
	}
}

const retryAfterKey = "Retry-After"

// retryAfterOf returns the seconds until the Retry-After that is set; false
// where none is, or none that a client could read.
func retryAfterOf(h http.Header) (int64, bool) {
	lines := h[retryAfterKey]
	if len(lines) != 1 {
		return 0, false
	}
	if seconds, ok := parseCount(lines[0]); ok {
		return seconds, true
	}
	date, err := http.ParseTime(lines[0])
	return secondsCeil(time.Until(date)), err == nil
}

// waitSeconds is a wait as clients are told it. Some take 0 for "none given" and
// come back at once.
func waitSeconds(wait time.Duration) int64 { return max(secondsCeil(wait), 1) }

func secondsCeil(d time.Duration) int64 {
	seconds := int64(d / time.Second)
	if d%time.Second > 0 {
		seconds++
	}
	return seconds
}

// parseCount reads digits and nothing else.
func parseCount(s string) (int64, bool) {
	n, err := strconv.ParseUint(s, 10, 63)
	return int64(n), err == nil
}
