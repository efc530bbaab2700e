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
