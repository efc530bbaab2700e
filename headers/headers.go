package headers

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/given"
)

// A Writer sets response headers from a decision, before the handler runs and again when
// a Settle changes the decision. It must be safe for concurrent use.
type Writer func(http.Header, algorithms.Decision)

// None is a [Writer] that sets nothing.
func None(http.Header, algorithms.Decision) {}

// All returns a [Writer] that calls the writers in their order. A nil writer is
// [XRateLimit].
func All(writers ...Writer) Writer {
	writers = slices.Clone(writers)
	for i, w := range writers {
		writers[i] = orDefault(w)
	}
	return func(h http.Header, d algorithms.Decision) {
		for _, w := range writers {
			w(h, d)
		}
	}
}

func orDefault(w Writer) Writer {
	if w == nil {
		return XRateLimit
	}
	return w
}

// shortest is the shortest wait that a field of this package takes.
const shortest = 10 * time.Millisecond

// Jitter returns a [Writer] that tells clients to come back later than they could, by a
// random time of at most longest, so that clients denied together do not come back
// together. Each response has one random amount, which is added to the resets that w
// writes and to Retry-After, which Jitter sets on denials. No client is told to come back
// too early.
//
// If longest is 0 or less, Jitter returns w; if it is below 10 ms, Jitter panics. A nil w
// is [XRateLimit]. With Jitter, X-RateLimit-Reset differs from response to response.
func Jitter(longest time.Duration, w Writer) Writer {
	w = orDefault(w)
	if longest <= 0 {
		return w
	}
	if err := given.TooShort("longest", longest, shortest); err != nil {
		panic("headers: Jitter: " + err.Error())
	}
	return func(h http.Header, d algorithms.Decision) {
		wait, by := retryAfter(d), rand.N(longest)+1 //nolint:gosec // spreads clients; a client gains nothing by guessing it
		d.Results = slices.Clone(d.Results)
		for i := range d.Results {
			r := &d.Results[i]
			r.ResetAfter = later(r.ResetAfter, by)
			if !r.HasRoom {
				r.RetryAfter = later(r.RetryAfter, by)
			}
		}
		w(h, d)
		setWait(h, d, later(wait, by)) // the middleware's own is not later, so this one stays
	}
}

// later returns wait+by; Never stays Never.
func later(wait, by time.Duration) time.Duration {
	if wait > algorithms.Never-by {
		return wait
	}
	return wait + by
}
