// Package field names the response fields of rate limits, spelled as the keys
// of an [net/http.Header]. Package headers writes them. Whatever merges or moves
// them, as a reverse proxy must, takes the names from here.
package field

// The fields.
const (
	XLimit     = "X-Ratelimit-Limit"
	XRemaining = "X-Ratelimit-Remaining"
	XReset     = "X-Ratelimit-Reset"
	RateLimit  = "Ratelimit"
	Policy     = "Ratelimit-Policy"
	RetryAfter = "Retry-After"
)

// All returns the names of all fields.
func All() [6]string {
	return [...]string{XLimit, XRemaining, XReset, RateLimit, Policy, RetryAfter}
}
