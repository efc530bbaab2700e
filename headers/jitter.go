package headers

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// Jitter returns a Writer that tells clients to come back up to most later than
// they could, so that those denied together do not come back together: one
// random amount for each response, in the resets that w writes and in
// Retry-After, which it sets on denials. Nobody is told to come back too early.
//
// A most of 0 or less changes nothing. With Jitter, X-RateLimit-Reset differs
// from response to response.
func Jitter(most time.Duration, w Writer) Writer {
	if most <= 0 {
		return w
	}
	return func(h http.Header, d algorithms.Decision) {
		by := rand.N(most) + 1 //nolint:gosec // spreads clients; nobody gains by guessing it
		d.Results = slices.Clone(d.Results)
		for i := range d.Results {
			r := &d.Results[i]
			r.ResetAfter = later(r.ResetAfter, by)
			if !r.Allowed {
				r.RetryAfter = later(r.RetryAfter, by)
			}
		}
		w(h, d)
		RetryAfter(h, d) // the middleware's own is not later, so this one stays
	}
}

// later leaves Never as it is.
func later(wait, by time.Duration) time.Duration {
	if wait > algorithms.Never-by {
		return wait
	}
	return wait + by
}
