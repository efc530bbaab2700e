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

// Limits returns the names of the fields that tell limits: all but Retry-After.
func Limits() [5]string {
	return [...]string{XLimit, XRemaining, XReset, RateLimit, Policy}
}
