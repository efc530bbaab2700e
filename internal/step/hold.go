package step

import "math/rand/v2"

// A Hold names a request under way. It is negative if it is unknown whether the store knows
// the request.
type Hold int64

// NewHold returns a name that is never used twice. It is made before anything is sent, so that
// the caller can release also what it got no answer about.
func NewHold() Hold { return Hold(1 + rand.Int64N(1<<52-1)) }

// ID is the name in the store; 0 for none.
func (h Hold) ID() int64 { return int64(max(h, -h)) }

// Unsure is the name of a request of which it is unknown whether the store knows it.
func (h Hold) Unsure() Hold { return -max(h, -h) }
