// Package headers tells clients what a rate limiter decided: response headers
// on every response, and the response to a denied request. For the other side
// it has [RetryAfter], which reads these headers, and [Transport], with which
// a Go client obeys them.
//
// Read [Writer], [Deny] and [Transport] first. A Writer sets headers on a response, Deny
// answers a denied request, and Transport is for clients.
//
// Most clients understand [XRateLimit]. [IETFDraft11] is the current draft of the IETF.
// [All] sends both. If the fields are already set, by another
// limiter in front or by an upstream server behind a reverse proxy, the writers
// merge: the tighter values stay, and no field is sent twice.
package headers

import (
	"net/http"
	"slices"

	"github.com/seed75154129/ratelimit/algorithms"
)

// A Writer sets response headers from a decision, before the handler runs. It
// must be safe for concurrent use.
type Writer func(http.Header, algorithms.Decision)

// None is a [Writer] that sets nothing.
func None(http.Header, algorithms.Decision) {}

// All returns a [Writer] that calls the writers in their order.
func All(writers ...Writer) Writer {
	writers = slices.Clone(writers)
	return func(h http.Header, d algorithms.Decision) {
		for _, w := range writers {
			w(h, d)
		}
	}
}
