package middleware

import "sync"

// ForgetHold makes the next Hold of no request the first of the process.
func ForgetHold() { holdsNothing = sync.Once{} }
