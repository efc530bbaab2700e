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
// All arithmetic is in whole numbers: Unix microseconds and units. Buckets also keep a
// fraction of a microsecond, with the rate as its denominator. Each algorithm exists
// twice: as a pure function in Go, and as its twin in Lua. The Lua twin only decides: Go
// computes the fields of each Result from the state.
//
// # Clocks
//
// Redis decides by its own clock (TIME, read once for all checks), Memory by the wall
// clock at its first use plus the monotonic time since then. A stored time that disagrees
// with the clock can only make a decision stricter, so no client gains from clocks that
// differ between processes, or from one that steps back by less than a period.
//
// If a state was written at a time more than one period ahead of the clock, that time was
// wrong: the state's units count as if they were used now, and recover as the limit says.
// So a clock that steps back by more than a period gives a window's units back when the
// window ends in which it arrives, and a refund of a charge from before the step may free
// units that others have used since.
// A debt is stored as a time in the future, too, but is no clock error, however large it
// is. It may come from a slower limit on the same count, of another process or check. A
// debt denies until it is repaid.
package algorithms

// # How it works
//
// This package has the vocabulary and two faces: a Redis in front of packages script and
// transport, a Memory in front of package memory. A check becomes step.Params once; a
// table of 256 places without locks keeps those used last. The decision is
// abstracted, and not the storage: Take gets all checks of a request at once.
//
// # Keys in Redis
//
// namespace:{key}:rule:algorithm:period, for example shop:{203.0.113.9}:per-ip:sw1:1m.
// A calendar stands for the period.
//
//   - The client's key is the hash tag, so a cluster keeps together what it knows of a client.
//   - Parts that are longer than 64 bytes or not plain are replaced by # and 128 bits of
//     their SHA-256. No other part begins with #, so no two keys meet.
//   - Rate and burst are not part of the key, so a changed limit binds existing counts at
//     once. A bucket's state is a time: 10 units owed at 100 per hour are 6 minutes, and 1
//     unit at 10 per hour.
//   - The period is part of the key. Otherwise two processes that disagree during a roll-out
//     would deny each other's clients (TestKeysAreInjectionFree).
//   - The digit behind the algorithm is the form of its states. Two forms never meet, and no
//     code reads a former one (TestEachFormHasItsName).
//
// A Middleware counts bans as limits, whose rules have names such as login~ban: a check with
// Look needs a full bucket and charges nothing.
//
// # Settle
//
// A Result says where its charge is in the state. Settle corrects the state by the difference
// to the new cost. The stores cannot tell whether a charge was settled: they keep counts and
// not charges. So the caller settles each result once, as the ledger of package middleware
// does. If the outcome is unknown, the returned result has the lower cost.
//
// # Clusters and Rings
//
// The checks of each key are one call, and all calls are in one flush. While a slot moves,
// a script with several keys fails and has done nothing: its checks are then sent one by
// one. If an enforced check denies, what the other calls were charged is refunded in a
// second flush, inside the same budget. Two requests can deny each other for the length of
// a flush. No limit is exceeded.
//
// A refund costs a bucket the refill since the charge, and a queue its slot. So a stream of
// denied requests drains the buckets that they share with other clients. A Guard sends one
// such request a second.
//
// If a part of the cluster is unavailable, its checks have an Err, and the others may stay
// charged. Charged always reports what stands. A refund that certainly failed leaves the
// charge in the result. A refund without an answer leaves nothing to settle, because
// refunding twice would exceed the limit.
