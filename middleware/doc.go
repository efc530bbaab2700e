// Package middleware limits how often clients may call HTTP handlers. It wraps an
// [http.Handler], resolves the keys of a request, decides all rules that match the
// request together, and answers 429 if any of them is over its limit. No rule charges
// a denied request.
//
// Import it as ratelimit, because chi has a package of the same name:
//
//	import ratelimit "github.com/seed75154129/ratelimit/middleware"
//
// # Where to begin
//
// Read [Rule], [Config] and [Middleware] first. A [Rule] says which requests
// count together and how many are allowed; a [Config] has the rules and the
// limiter that decides; [New] checks the Config, reports all mistakes at once, and
// returns a [Middleware], whose Handler goes around your handler.
//
// The other packages, in the order in which you may need them:
//
//	keyfunc                 which client is limited: an address, a user, an API key
//	algorithms              how requests are counted: limits; the limiters Redis and Memory
//	failmode                what happens while Redis is unavailable
//	middleware/shed         what is refused while the server is overloaded
//	headers                 what clients are told, and a Transport that obeys it
//	middleware/metrics      what was counted, for Prometheus
//	middleware/admin        a page for operators: rules, bans, the counts of a client
//	middleware/rulefile     rules from YAML or JSON, reloaded while the service runs
//	algorithms/limitertest  tests of your own limits, in fake time
//
// # Behind the middleware
//
// [FromContext] returns the decision to a handler. [Settle] sets what a request has cost.
// [ModifyResponse] merges the headers of a reverse proxy's upstream.
package middleware

// # How it works
//
// docs/architecture.md has the life of a request. A Middleware starts no goroutine and has
// no Close. The program makes the Guard and the Redis, and closes them. New refuses a bare
// Redis, because it has no fail modes, and prints the line to write.
//
// # Order
//
//   - A request that a key refuses is charged by the other rules and may be denied by them.
//     Otherwise a client could try 5000 tokens against a limit of 20.
//   - Keys that read the body are resolved last. If another check is known to be over its
//     limit, the body is not read. If the store admits that check after all, a second
//     question follows, and the first is refunded if the second denies.
//   - Before any key is resolved, r.Body is replaced by one of which several readers can see
//     the beginning (package replay). The handler still reads all of it. The request is
//     changed in place, because with a copy the middlewares in front would find a body whose
//     beginning is gone.
//   - A limiter that fails and is no Guard has no local counting. Rules in mode Open pass,
//     all others answer 503, and what was charged is refunded.
//
// # Matching
//
// net/http.ServeMux validates patterns, and what is surely a mistake (/files/*, /u/:id) is
// also refused. Match answers whether any common router could serve the request by the
// pattern: ServeMux, chi, or a router that takes URL.Path. It may err towards limiting.
// Skip errs the other way: only the exact spelling is exempt. No matcher sees a middleware
// behind this one that rewrites the path.
//
// # Waiting
//
// A request that a leaky_bucket delays waits in Handler for the longest delay of its rules.
// A request that cannot wait takes no slot, because a slot that is refunded is free only
// while it is the last. So the request takes its place in the wait queue before the decision,
// and the check's MaxDelay is the time until its deadline, less the budget.
//
// # Bans
//
// A rule with a Ban has two more limits: package banned. Their checks stand behind those of
// a request, and their results are taken out before anybody sees the decision. A denial
// strikes before the response is written, so that the response tells of a ban that begins.
//
// # Limiters in a chain
//
// What each middleware of a request decided is a list in the request's context, the
// outermost first. FromContext joins the results. ModifyResponse moves an upstream's fields
// into the response's header map and calls all writers again, which merge. Writers, Deny
// and Config.Denied get no hidden rules; FromContext, Observe and Take have all results.
//
// # What operators see
//
// Decisions touch only atomics: each rule has an array of counters by outcome and source.
// Circuits and tables are read when metrics are collected. No key is a label. Keys in logs
// and lists are an HMAC with a secret of this process, so that an address cannot be found by
// hashing all of them. The keys denied most are counted in sketches of 256 keys.
//
// # Warnings about configurations
//
// The middleware watches the first 1000 requests of a set of rules and logs, once each,
// what looks like a mistake. A warning never names a sender, because a client could ask to
// be trusted that way. Watching does not change the request. TestMisconfigurations has a row for
// each configuration that was tried.
//
// # A new field of a rule
//
// It takes a field of Rule with rows in the table of mistakes, a row in rulefile's table of
// fields, a property in rules.schema.json, a row in docs/rules.md and a field of the
// operators' view. Tests compare them with the fields of Rule.
