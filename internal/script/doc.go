package script

// # How it works
//
// The top of each script says its KEYS, its ARGV, what it returns and which function
// sends it. common.lua stands before it: the clock, the twins of internal/step, and how
// a request is decided.
//
// joint.lua decides several requests: it reads their states at once, and steps find them
// in states. Both it and take.lua may decide on one key (TestHistories).
//
// The reply is one string with the states as they are stored. Go repeats the decision
// from them. A step reads at most 64 bytes of a key, and tells by their length whether
// they are a state. So a foreign value of megabytes costs no more than a state.
//
// A step writes nothing: it says how to write its state. All keys are read before any is
// written. So a script that meets a value that is no state fails without a write. Its
// checks are then sent one by one, so that only that one is undecided
// (TestHistories).
//
// # Cost
//
// Lua makes functions and tables anew in each run, and each variable that a function
// shares. A decision of three checks takes 7 µs; a function takes 0.1 µs of them, even if it
// is not called, and as much for each check that calls it. So the steps are branches of one
// function, and what few runs need is made where it is needed.
//
// # States in Redis
//
// A state whose deadline stays the same is written in place, by SETRANGE if the text has
// the same length and by SET with KEEPTTL otherwise (TestStatesAreWrittenInPlace). The
// deadline of a window is its end. The deadline of a bucket is the end of a part of a
// grid, one period long but between 1 and 60 s.
//
// Redis stores a text that is a number in a third less memory. So the units of a window
// stand in the last six digits of its start, which are mostly zero: up to 999,999 units of
// a fixed_window, or 999 in each of the two of a sliding_window (TestEachFormHasItsName).
//
// A sliding_log is a list of times, each with the sum of all units up to it. So expiry and
// RetryAfter are a binary search. One LTRIM removes what has left, at the next charge.
//
// A Settle of several charges also reads all keys before it writes any. If one holds no
// state, nothing was settled, and each charge is sent again by itself.
//
// # Two traps of miniredis
//
// Convert numbers by string.format('%d', n) only, because miniredis prints other
// conversions in full and a server keeps 14 digits. Assign one variable at a time if the
// right side reads what the left side writes. A script is proven only on a real server.
