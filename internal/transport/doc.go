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
// Calls to one server that are made at the same time share a pipeline. Those that
// differ in their keys only are one command there ([Script.JoinedBy]). A lone call
// is sent at once. While the places of a server are taken, later calls wait in
// lines, one for each rule, which take turns. A call that cannot be sent within its
// budget fails as busy, which is no failure of the server.
//
// [ClassOf] says what an error means for the server: whether it was reached, whether
// it refused, and whether the call was certainly not executed.
package transport
