// Package step has the arithmetic of the algorithms: pure functions of a state, a limit
// and a time, in whole numbers. It imports the standard library only, and knows neither
// checks nor stores.
//
// A [State] is three whole numbers; a sliding_log in memory has its entries too. [Params]
// are a [Limit] and a cost as numbers. Each algorithm has a step: its methods bring a
// stored state to the current time (At), charge a cost if it fits (Take), correct an
// earlier charge ([Correction]), and compute how many units are left (Left).
//
// Every step has a twin in Lua, line for line.
package step

// # How it works
//
// The states, and what an algorithm admits:
//
//	algorithm           state                                              admits a cost if
//	fixed_window        window start, used                                 used + cost ≤ R
//	sliding_window      window start, used, used in the window before      last·(fraction in view) + used + cost ≤ R
//	sliding_log         (time, sum of all units up to it), one per charge  units in (now − P, now] + cost ≤ R
//	token_bucket, gcra  TAT; how far ahead it was when written, in ms      TAT + cost·P/R ≤ now + B·P/R
//	leaky_bucket        the same; TAT is the end of the last slot          the same, and Delay ≤ MaxDelay
//	calendar_window     date of the window, used                           used + cost ≤ R
//	in_flight           of each process what it runs, until a lease ends   requests < R
//
// R is the rate, P the period, B the burst. TAT is the time at which a bucket is full
// again, w + f/R in microseconds.
//
// # Twins
//
// The twin decides, and returns the state before the charge. Go charges that state again
// and computes Remaining, RetryAfter and ResetAfter from it, for both stores.
// TestHistories takes random histories on miniredis, on a redis-server and on a
// cluster, and compares every field with a Memory, whose answers it compares with
// rational arithmetic that is written from the definitions.
//
// # Exact numbers
//
// Lua has doubles only. Limits are bounded so that every number stays below 2^53.
// Larger products are divided in Go, with 128 bits, before they are sent: the twin of a
// bucket only adds and compares. Numbers are sent to Redis through string.format('%d'),
// because Lua's own conversion keeps 14 digits on a real server.
//
// # Clocks
//
// Times are Unix microseconds; a bucket also keeps the fraction of a microsecond, over
// the rate. A stored time moves a decision only towards denying.
//
// A state that was written more than a period ahead of now was written by a wrong clock.
// Its usage is kept, and re-dated to now. So a clock that was a year ahead does not deny
// for a year, and frees a client at the end of the window that is now. A Take writes the
// new date, and a Peek nothing. The settlement that finds such a state refunds nothing; a
// later one may take its date for that of an older charge. A clock that jumps forward
// expires keys. A window and a log show when they were written. A bucket has to say how
// far ahead its TAT was then, because a large TAT can be a debt: another process, or
// another check, may have a slower limit on the same key. A debt denies until it is
// repaid, and nothing is rewritten.
//
// For two limits on one key, all that a limit has admitted is also admitted if it is
// replayed alone through a fresh state. If the other limit stops, each is admitted when
// its RetryAfter ends (TestHistories, beside another limit).
//
// A key lives until its state equals one that was never seen, rounded up to the
// millisecond, plus one. A state in which nothing is used counts as never seen.
//
// # Settlement
//
// A refund frees no more than waiting would have freed (TestHistories).
// A bucket refunds at most what it has not refilled since the charge. A window refunds
// what was counted in it, a sliding_window also what was counted in the one before. A log
// refunds from the charge's own entry, if at most 1000 entries came later. A queue refunds
// a slot only while it is the last.
//
// A settlement may also charge more, which can leave a debt: Remaining is negative then.
// A bucket owes until it has refilled, at most until TAT is 2^52 µs, in the year 2112. A
// window's debt ends with the window, that of a sliding window with the next one, and a
// log's with the entry. What raised a count to the end of the exact range is never refunded,
// because the count does not say how much of it that was.
//
// # A new algorithm
//
// An algorithm is a row of Table. Other code compares neither names nor codes: what it
// needs is a column of the row or a method of the step. A new algorithm takes
//
//   - NAME.go here: its step, which may embed another step and change what differs;
//   - its number and its row, at the end of both lists in algorithm.go; and a constant in
//     package algorithms;
//   - the twin: a branch of step in internal/script/common.lua, for the row's Code, and the
//     correction in settle.lua;
//   - algorithms/exact_test.go: its promise in rational numbers, as an exactModel;
//   - the form of its state, written by go test ./algorithms -run TestEachFormHasItsName -update;
//   - a line in the table above and in algorithms/doc.go;
//   - its bounds in the comment of Limit.Validate, its name in
//     middleware/rulefile/rules.schema.json, and what -update writes: TestTheAPIIsListed of
//     internal/docs, TestBadDocuments of middleware/rulefile;
//   - a section in docs/algorithms.md, and a row in the
//     lab (ratelimit lab).
//
// The tests of the steps are in algorithms and internal/memory. Run these first:
//
//	go test ./algorithms -run TestHistories
//	go test ./internal/memory -run TestSketches
//
// Further rules:
//
//   - A request of one limit must not move the windows of another limit on the same key: they
//     share a state.
//   - Keys share the cells of a sketch, and Most and Least compare windows of one start. An
//     algorithm whose windows begin at other times must not embed inCells. It writes ToCell,
//     Roll and FromCell, as slidingLog does.
//   - If a state has a C in a cell, B and C stay below 2^31, and so does MaxRate.
