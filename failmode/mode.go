package failmode

import (
	"github.com/seed75154129/ratelimit/algorithms"
)

// A Mode says what to do with a check while the store cannot count it. While the
// store is well, a check that it did not decide in time, or whose key another program
// has written, is counted locally in every mode; see [Guard].
type Mode = algorithms.FailMode

const (
	// Local counts the check in this process, at its share of the limit. The
	// default.
	Local Mode = iota
	// Open passes the check uncounted: for limits that matter less than the
	// service. A key that the store last denied stays denied until it would have
	// room.
	Open
	// Closed denies the check, with status 503: for limits that matter more than
	// the service, such as those on logins.
	Closed
)
