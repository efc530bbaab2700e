// Package algorithms decides whether requests may pass.
//
// A [Check] says what is counted (a rule and a key) and how (a [Limit]). A
// [Limiter] takes all checks of a request at once and charges every one of
// them or, if one is over its limit, none. [Redis] counts for many processes,
// in one round trip; [Memory] counts inside one process. Both can also report,
// correct and clear counts.
//
// Read [Limit], [Check] and [Limiter] first. For HTTP, package middleware makes
// the checks; here is what decides them, and what other work uses: [Wait] for
// calls that you make, [Limiter].Take for jobs, messages and RPCs. Put a Redis
// into a failmode.Guard, so that its outages are not yours.
//
// # Algorithms
//
//	fixed_window    at most Rate units in each window of Period, aligned to the Unix epoch
//	sliding_window  as fixed_window, with the last window's count weighted by its share still in view
//	sliding_log     at most Rate units in any span of Period: exact, with an entry for each request
//	token_bucket    up to Burst units at once, refilled at Rate per Period
//	leaky_bucket    a queue of up to Burst, served one by one at Rate per Period
//	gcra            token_bucket in another form
//
// All arithmetic is in whole numbers: Unix microseconds and units, and for the
// bucket a fraction of a microsecond with the rate as its denominator. Each
// algorithm exists twice, as a pure step in Go and as its twin in Lua. The Lua
// side only decides. For both, Go computes what clients are told from the state.
//
// # Clocks
//
// Redis decides by its own clock (TIME, read once for all checks), Memory by
// the wall clock at its start plus the monotonic clock. A stored time only ever
// moves a decision towards denying, so clocks that step back or differ between
// processes give nobody extra room.
//
// A state that was written more than one period in the future was written by a
// clock that was wrong: what was used then counts as used now, and recovers as
// the limit says. A debt is no clock error, however large: it may be another
// limit's, of an instance or a tier that has a slower one on the same key. It
// denies until it is repaid. (Two limits that rewrote each other's debts once
// admitted 2968 of 3000 requests in 3 ms.)
package algorithms
