// Package failmode decides what nobody can count: while Redis is away, every
// check follows its [Mode].
package failmode

import (
	"github.com/seed75154129/ratelimit/algorithms"
)

// A Mode says what to do with a check when nobody can count it.
type Mode = algorithms.Mode

const (
	// Local counts the check in this process, at this process' share of the
	// limit. The default.
	Local Mode = iota
	// Open passes the check uncounted: for limits that matter less than the
	// service.
	Open
	// Closed denies, with status 503: for limits that matter more than the
	// service, such as those on logins.
	Closed
)

// Valid reports whether m is one of the modes.
func Valid(m Mode) bool { return m >= Local && m <= Closed }
