package failmode

import "github.com/seed75154129/ratelimit/algorithms"

// A Mode says what to do with a check while the store is unavailable or refuses to count.
// While the store is healthy, a check that the store did not decide in time, or whose key
// another program has written, is counted locally in every mode; see [Guard].
type Mode = algorithms.FailMode

const (
	// Local counts the check in this process, up to the process' share of the limit. It is
	// the default.
	Local Mode = iota
	// Open passes the check uncounted: for limits that matter less than the
	// service. A key that the store last denied stays denied until a request fits the
	// limit.
	Open
	// Closed denies the check, with status 503: for limits that matter more than
	// the service, such as those on logins.
	Closed
)
