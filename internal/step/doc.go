// Package step has the arithmetic of the algorithms: pure functions of a state, a limit
// and a time, in whole numbers. It imports the standard library only, and knows neither
// checks nor stores.
//
// A [State] is three whole numbers; a sliding_log in memory has its entries too. [Params]
// are a [Limit] and a cost as numbers. Each algorithm has a step: its methods bring a
// stored state to the current time (At), charge a cost if it fits (Take), correct an
// earlier charge ([Correction]), and compute how many units are left (Left).
//
// Every step has a twin in Lua, line for line. Times are Unix microseconds. A bucket also
// keeps a fraction of a microsecond, with the rate as its denominator. Limits are bounded
// so that all numbers are exact in doubles, the only numbers of Lua. A stored time moves
// a decision only towards denying. A state that was written more than one period ahead of
// now is a clock error: its used units are counted as used now.
package step
