// Package step is the arithmetic of the algorithms: pure functions of a state, a limit
// and a time, in whole numbers. It imports the standard library only, and knows neither
// checks nor stores.
//
// A [State] is three whole numbers (and, of a sliding_log in memory, its entries). A
// [Limit] at a cost becomes [Params] once. The step of an algorithm says what a state
// is at a time (At), whether the cost fits and what the state becomes (Take), what an
// earlier charge is corrected to ([Correction]), and how many units are left.
//
// Every step has a twin in Lua, line for line. Times are Unix microseconds; a bucket
// also keeps the fraction of a microsecond, over the rate. Limits are bounded so that
// all numbers stay exact in doubles, which is all that Lua has. A stored time moves a
// decision only towards denying. A state that was written more than a period ahead of
// now is a clock error: it keeps what was used and is moved to now.
package step
