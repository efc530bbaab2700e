// Package outages puts the recommended limiter, a failmode.Guard, under load
// and takes away the Redis behind it in every way that we know of: real
// servers hang, die, come back empty or full, move their slots, step their
// clocks; networks delay, lose and refuse. What the limiter
// then owes its users is asserted of every single request, and in the end Redis'
// own counts are compared with what was admitted. It has tests only:
//
//	go test ./internal/outages   # a selection, half a minute
//	make outages                 # all; writes the table of docs/testing.md
//
// # The load
//
// Requests start at a constant rate, however long others take, and go through
// the middleware's Handler. Each has two checks: "each", with a limit that
// nobody reaches, and that of its route: "local", "open" or "closed", which is
// also the fail mode. The clients are
//
//   - regulars, who use all routes and stay below every limit and share,
//   - the abuser, who has used up "local" before the load begins,
//   - the newcomer, who first comes during the outage and wants more of "local"
//     than a share.
//
// # Time
//
// All of this needs real time, and machines that run tests are busy. So the
// selection asserts what was decided and counted, which no machine can excuse,
// and only logs how long it took. With OUTAGES=all times are asserted, too:
// beside the load timers of the budget's length run, and pings of a Redis that
// nobody else uses; how late they are is how late the machine made the requests
// that ran at the same time, and a request is blamed only for what is beyond
// twice that. A limiter that waits too long still fails: all its requests do,
// not only those in a busy moment. TestWrongLimiters looks that it does.
package outages
