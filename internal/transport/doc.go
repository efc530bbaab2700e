// Package transport sends script calls to Redis through a client of go-redis. It
// knows nothing of limits.
//
// A [Transport] resolves once what kind of client it has: a client of one server, a
// ClusterClient, a Ring, a client backed by Sentinel, or a wrapped one. From that
// follow how a command and a pipeline are sent, which server holds a key, and
// whether the client respects deadlines by itself.
//
// Every call has one budget. It ends with the budget and not with its caller's
// context. No call is executed twice: go-redis' retries are switched off. Only what a
// server certainly did not run is sent again: a script that it does not know, with its
// text, and calls that it does not run as one.
//
// A lone call is sent at once. Calls to one server that are made at the same time share a
// pipeline. A call that cannot be sent within its budget fails as busy, which is no
// failure of the server.
//
// [ClassOf] says how a call failed, and [NotExecuted] whether it was certainly not executed.
// Whether the server is well is asked on a connection of its own: see [Transport.Ask].
package transport

// # How it works
//
// internal/transport/client.go resolves what a client is; no other code looks at a client's
// type.
//
// # The budget
//
// A client is called on the caller's goroutine only if it respects deadlines by itself:
// ContextTimeoutEnabled, RESP2, and no function of the user's on the way. Any other client
// is called in a goroutine, which is left behind when the budget ends. A call is counted
// although its client has hung up, because the caller's cancellation does not reach Redis.
//
// A request has one budget for all that it waits for decisions. Who has waited before passes
// on the end of the budget by wait.PartOf. If too little is left, nothing is sent, and the
// decision fails as busy.
//
// # Batches
//
// Each server has a batcher. While fewer than three batches are under way to a server, a
// call is sent at once and alone. Otherwise calls wait, and all that wait go in one
// pipeline when a batch returns. So a single caller pays nothing, batches grow with the
// load, and there is nothing to configure. What bounds a batch, and why, is said beside the
// constants in batcher.go.
//
//   - A batch has the deadline of its latest member. One timer of the batcher wakes calls
//     whose time has ended. There is no timer and no goroutine while no batch is under way.
//   - Calls with the same rules wait in one line, and lines take turns (TestRulesTakeTurns).
//     If 4096 calls wait, the longest line gives way to others (TestWhoWaitsIsBoundedAndDropped).
//   - Calls of a batch that differ only in their keys and in Call.Own are one run of a joint script
//     (Script.JoinedBy): one TIME, one MGET, and each state is written once. With 128 callers
//     that saves a quarter of Redis' time. The transport compares arguments and knows nothing
//     of limits. Joint calls keep their order (TestHistories).
//   - A joint call that fails has an error of its own, and the others stand
//     (TestABadKeyFailsOneRequest). Keys whose values are slow to read are kept apart for a
//     minute.
//   - All is read before the first write. Only what certainly wrote nothing is sent again,
//     alone. If MGET or EXISTS is refused, or keys are in several slots, calls are sent alone
//     for a minute.
//   - A script that the server does not know is sent once for each batch.
//   - A batch that fails is one failure for the circuit, because each connection that a
//     proxy closes would open it otherwise (TestALostBatchIsOneFailure).
//   - A hook of the client that panics ends the requests of its batch and not the process
//     (TestAPanicEndsItsRequestsOnly).
//   - Calls are sent one by one, 1024 at a time, if it is unknown what the client does with
//     a pipeline (wrapped clients) or which server has the key (before a cluster's first answer).
//
// # Connections
//
// A call without an answer has one connection made in the background: see connector.
// Pipelines have connections of their own since go-redis 9.23, so Warm opens both kinds.
//
// # Clusters and Rings
//
// A shard is a master of a cluster or a server of a Ring, by its address as go-redis knows
// the topology. Each server's calls are a pipeline of their own (byNode). A failure makes
// the client look at its cluster again, at most four times a second (reloadEvery).
