package headers

import (
	"io"
	"net/http"

	"github.com/seed75154129/ratelimit/algorithms"
)

// Status is the status code that a decision asks for: 200 for an admitted
// request, 429 for one over a limit, and 503 for one that only rules deny which
// nobody could count (fail closed).
func Status(d algorithms.Decision) int {
	if d.Allowed {
		return http.StatusOK
	}
	for i := range d.Results {
		if r := &d.Results[i]; !r.Allowed && !r.Check.Shadow && r.Err == nil {
			return http.StatusTooManyRequests
		}
	}
	return http.StatusServiceUnavailable
}

// Deny is the default response to a request that was denied: the status of
// [Status], Retry-After, and a line of text. A cache must not keep it.
func Deny(w http.ResponseWriter, r *http.Request, d algorithms.Decision) {
	status := Status(d)
	h := w.Header()
	RetryAfter(h, d)
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = io.WriteString(w, http.StatusText(status)+"\n") // nobody to tell
	}
}
