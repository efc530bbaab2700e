package middleware

import "sync"

// ForgetHold makes the next Hold of no request the first of the process.
func ForgetHold() { holdsNothing = sync.Once{} }

// Sources are the words of the log and of metrics for who decided.
var Sources = originNames[:]
