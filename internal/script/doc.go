package script

// # How it works
//
// The top of each script says its KEYS, its ARGV, what it returns and which function
// sends it. In src each step and each loop stands once: src/steps has the twins of
// internal/step, src/parts what several scripts include.
//
// # Cost
//
// Lua makes functions anew with each run, and each call of one costs time. So the steps
// stand in the loop of take.lua, which is for requests without bans. In the other scripts
// a step is a function. take_bans.lua is a script of its own, because one script for both
// would take about 60 % more of Redis' time for requests without bans. Both may decide on
// one key (TestConformance). take_joint.lua decides several requests: it finds their
// states in the reply of MGET, counts the sets of in_flight, and the steps stand in its loop.
//
// The reply is one string with the states as they are stored. Go repeats the decision
// from them. A step reads at most 64 bytes of a key, and tells by their length whether
// they are a state. So a foreign value of megabytes costs no more than a state.
//
// A step writes nothing: it says how to write its state. All keys are read before any is
// written. So a script that meets a value that is no state fails without a write. The
// request is then decided by take_bans.lua, which leaves only that check undecided
// (TestAForeignValueTakesNoOtherCheckAlong).
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
// a fixed_window, or 999 in each of the two of a sliding_window (TestWindowsAreKeptAsNumbers).
//
// A sliding_log is a list of times, each with the sum of all units up to it. So expiry and
// RetryAfter are a binary search. One LTRIM removes what has left, at the next charge.
//
// # Bans by hand
//
// A check without a Ban does not read the key of a ban. So Ban also writes the word "ban"
// in the place of the count, which no step takes for a state, and moves the count to a
// key that ends with ":kept". take.lua fails at the word before it writes, and the
// request is sent again to take_bans.lua. A client that is banned by hand costs a second
// command, and other clients cost nothing (TestABanByHandIsMetWithoutReadingBans).
//
// A Settle of several charges also reads all keys before it writes any. If one holds no
// state, nothing was settled, and each charge is sent again by itself.
//
// # Two traps of miniredis
//
// Convert numbers by string.format('%d', n) only, because miniredis prints other
// conversions in full and a server keeps 14 digits. Assign one variable at a time if the
// right side reads what the left side writes. A script is proven only on a real server.
