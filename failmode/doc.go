// Package failmode decides requests while the store that counts them, such as
// Redis, cannot.
//
// A [Guard] wraps the store. It stops asking servers that do not answer, and
// meanwhile decides each check by its [Mode]:
//
//	guard := failmode.Redis(&redis.Options{Addr: "redis:6379"}, "shop")
//	defer guard.Close()
//
// With a client of your own, or a Budget, the parts are:
//
//	client := redis.NewClient(algorithms.FailFast(&redis.Options{Addr: "redis:6379"}))
//	defer client.Close()
//	guard := &failmode.Guard{Limiter: &algorithms.Redis{Client: client, Namespace: "shop"}}
//	defer guard.Close()
//
// Read [Guard] and [Mode] first. A Guard wraps an [algorithms.Limiter], and is one. A program
// makes one Guard for each Redis and namespace, shares it, and closes it.
package failmode

// # How it works
//
// A Guard decides in this order. What an earlier step decides, a later one does not see.
//
//  1. Known denials: keys that the store last denied (package denials).
//  2. Copies of hot keys, which only admit (package synced).
//  3. Checks whose circuit is open, by their fail modes (package monitor). If one denies,
//     nothing is sent.
//  4. The store, for all other checks.
//  5. Local counting, for checks that the store did not decide.
//
// All or nothing holds across both stores: if a check denies, what others were charged is
// refunded, in the store in the background. A charge whose outcome is unknown never is.
//
// A check that is not decided although its circuit is closed was late, this process had no
// connection free, a slot was moving, or it met an error although probes are good. It is
// counted locally in every mode. Otherwise a client that makes this process busy would pass
// the rules in mode Open, and the rules in mode Closed would refuse every other client.
//
// # Local counting
//
// The Guard has a Memory that follows every result of the store, of rules of all modes. It
// charges what the store charged, leaves no more than the store left, and holds this
// process's share of each limit. It refunds no more than it charged, because each outage
// would free a share otherwise. It follows what was admitted by a copy when that is told.
//
// A key that the store last denied stays denied in every mode until it fits its limit. The
// table of known denials decides that. Local counting cannot, because only the store knows
// the weight of a sliding window's last count. Reset forgets a key in all that this process
// knows: copies, known denials and local counts.
//
// A look that the store denied is in both, since a ban has to hold; one that has room ends both.
//
// # Work in the background
//
// The heartbeat that counts processes is sent on the path of requests, at most every five
// seconds, in a goroutine that ends with it. Close ends the goroutines of open circuits. In the
// background, a panic of a user's limiter is logged, and is an error of class unknown.
//
// Random histories run on a Guard, too: go test ./algorithms -run TestHistories/guard.
