// Package algorithms decides whether requests may pass.
//
// A [Check] says what is counted (a rule and a key) and how (a [Limit]). A
// [Limiter] takes all checks of a request at once and charges every one of
// them or, if one is over its limit, none. [Redis] counts for many processes,
// in one round trip; [Memory] counts inside one process. Both can also report,
// correct and clear counts.
//
// Read [Limit], [Check] and [Limiter] first. For HTTP, package middleware makes the
// checks. Other work uses this package: [Wait] for calls that the program makes, and
// [Limiter].Take for jobs, messages and RPCs. Wrap a Redis in a failmode.Guard, which
// decides while Redis is unavailable.
//
// # Algorithms
//
//	fixed_window    at most Rate units in each window of Period, aligned to the Unix epoch
//	sliding_window  as fixed_window, plus the previous window's units, as far as it lies in the last Period
//	sliding_log     at most Rate units in any span of Period: exact, with an entry for each request
//	token_bucket    up to Burst units at once, refilled at Rate per Period
//	leaky_bucket    a queue of up to Burst, served one by one at Rate per Period
//	gcra            token_bucket in another form
//
// All arithmetic is in whole numbers: Unix microseconds and units, and for the
// bucket a fraction of a microsecond with the rate as its denominator. Each algorithm
// exists twice: as a pure function in Go, and as its twin in Lua. The Lua twin only
// decides. Go computes the fields of the Result from the state, for both.
//
// # Clocks
//
// Redis decides by its own clock (TIME, read once for all checks), Memory by
// the wall clock at its start plus the monotonic clock. A stored time only moves a
// decision towards denying, so no client gains from a clock that steps back, or from
// clocks that differ between processes.
//
// If a state was written more than one period in the future, the clock was wrong then:
// the units that were used count as used now, and recover as the limit says. A debt is
// not a clock error, however large it is. It may come from a slower limit on the same
// key, of another process or tier. It denies until it is repaid.
package algorithms
