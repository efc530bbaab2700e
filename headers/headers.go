// Package headers tells clients what a rate limiter decided: response headers
// on every response, and the response to a request that was denied.
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

// XRateLimit is the default Writer. It sets, from the tightest enforced rule:
//
//	X-RateLimit-Limit      units that can be used at once
//	X-RateLimit-Remaining  units left
//	X-RateLimit-Reset      when all units are free again, in Unix seconds, rounded up
//
// The reset is a time on the clock that decided, so it does not wobble between
// requests or instances. Where no rule was decided it sets nothing.
func XRateLimit(h http.Header, d algorithms.Decision) {
	tightest, ok := d.Tightest()
	if !ok {
		return
	}
	// One array serves all three; nobody can append into the next value.
	values := [...]string{
		strconv.FormatInt(tightest.Check.Limit.Quota(), 10),
		strconv.FormatInt(tightest.Remaining, 10),
		strconv.FormatInt(unixCeil(tightest.At, tightest.ResetAfter), 10),
	}
	h["X-Ratelimit-Limit"] = values[0:1:1]
	h["X-Ratelimit-Remaining"] = values[1:2:2]
	h["X-Ratelimit-Reset"] = values[2:3:3]
}

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
// It sets nothing on an admitted request, nor where waiting never helps because
// the request costs more than a rule can hold.
func RetryAfter(h http.Header, d algorithms.Decision) {
	wait := d.RetryAfter()
	if d.Allowed || wait == algorithms.Never {
		return
	}
	h["Retry-After"] = []string{strconv.FormatInt(max(secondsCeil(wait), 1), 10)}
}

func secondsCeil(d time.Duration) int64 {
	seconds := int64(d / time.Second)
	if d%time.Second > 0 {
		seconds++
	}
	return seconds
}

// unixCeil is the first whole Unix second that is not before t+d.
func unixCeil(t time.Time, d time.Duration) int64 {
	micros := t.UnixMicro() + d.Microseconds()
	seconds := micros / 1e6
	if micros%1e6 > 0 {
		seconds++
	}
	return seconds
}
