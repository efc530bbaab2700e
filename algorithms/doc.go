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
// [Limiter].Take for jobs, messages and RPCs. If a worker is denied
// and can use less than it asked for, it asks again for what Remaining says is left. Wrap a
// Redis in a failmode.Guard, which decides while Redis is unavailable.
//
// # Algorithms
//
//	fixed_window    at most Rate units in each window of Period, aligned to the Unix epoch
//	sliding_window  as fixed_window, but the previous window's units count, too, in proportion to how much of that window lies in the last Period
//	sliding_log     at most Rate units in any span of Period: exact, with an entry for each admitted request
//	token_bucket    up to Burst units at once, refilled at Rate per Period
//	leaky_bucket    a queue of up to Burst requests, served one by one at Rate per Period
//	gcra            another name for token_bucket: the same decisions
//	calendar_window at most Rate units in each day, week, month, quarter or year of a time zone
//	in_flight       at most Rate requests in progress at once
//
// # Clocks
//
// Redis decides by its own clock, read once for all checks. Memory decides by the wall clock at
// its first use plus the monotonic time since then. A stored time that disagrees with the clock
// can only make a decision stricter, so no client gains from clocks that differ, or from one
// that steps back by less than a period. A state from more than a period ahead was written by a
// wrong clock: its units count as if they were used now. After a larger step back, a window's
// units come back when the window ends in which they arrive, and a refund of a charge from
// before the step may free units that others have used since. A debt is no clock error.
package algorithms

// # How it works
//
// This package has the vocabulary and two faces: a Redis in front of packages script and
// transport, a Memory in front of package memory. A check becomes step.Params once. Each
// algorithm is a pure function in Go and its twin in Lua, in whole numbers: microseconds and
// units. The twin only decides; Go computes the fields of each Result from the state.
//
// Keys in Redis are namespace:{key}:rule:algorithm:period, such as
// shop:{203.0.113.9}:per-ip:sw1:1m.
//
//   - The hash tag keeps together, on a cluster, what it knows of a client.
//   - Parts over 64 bytes or not plain are replaced by # and 128 bits of their SHA-256. No other
//     part begins with #, so no two keys meet (TestKeysAreInjectionFree).
//   - Rate and burst are not part of the key, so a changed limit binds existing counts. The
//     period is: two processes that disagree would deny each other's clients.
//   - The digit behind the algorithm is the form of its states. Two forms never meet
//     (TestEachFormHasItsName).
//
// Settle corrects a state by the difference to the new cost. The stores keep counts and not
// charges, so the caller settles each result once, as the ledger of package middleware does. If
// an outcome is unknown, nothing is settled again: refunding twice would exceed the limit.
