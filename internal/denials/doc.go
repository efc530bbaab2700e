package denials

// # How it works
//
// An entry has the state that the store returned, the store's clock, and when the question
// was sent and the answer was received. Limits and costs are not part of it.
//
// An entry without a state is the last denial, with its cost and limit. A sliding_log has
// such entries, because its state stays in Redis. Any newer answer replaces it.
//
// # Which requests ask the store
//
// If the state admits a check again, each request that asks the store reserves its cost.
// The other requests wait until no request asks any more or one was not charged, at most
// one budget. Without this, each window would begin with a flood at the store. A request
// holds no reservation while it waits for another. If the requests that ask get no answer,
// those that wait are counted locally.
//
// One request a second asks about a denied key even so, because another process may have
// reset it. All keys together ask 200 times a second at most.
//
// A cost above what the limit can hold is denied in any state.
//
// # Forgetting
//
// Settle, Reset and Ban empty a key's entry when they have returned. An answer to a
// question that was sent before is not stored: each group of keys counts how often it was
// emptied, and a question remembers the count. After Reset and Ban such an answer also does
// not reach local counting, where it would bring back a ban that was lifted, and a lease
// that it grants is not spent.
//
// # What is promised
//
// The limits are linearizable in one process (TestTheDenyCacheIsLinearizable), with two
// bounds. While a refund or a Reset is under way, a request may be denied although another
// one has already seen what it freed. And Remaining lacks what was charged while the answer
// was on its way. Between processes, the first lasts for up to a second.
// TestCacheChangesNoDecision compares random histories with and without the table, and
// TestFloodAsksForWhatIsAdmitted counts questions.
