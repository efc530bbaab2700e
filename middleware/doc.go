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
// docs/architecture.md follows a request and an outage through the code, and says how to add
// a field to a rule. A Middleware starts no goroutine and has no Close.
//
//   - Order: a request that a key refuses is charged by the other rules and may be denied by
//     them, or a client tries 5000 tokens against a limit of 20. Keys that read the body come
//     last, and not at all if another check is known to be over its limit.
//   - Body: before any key is resolved, r.Body is replaced by one of which several readers see
//     the beginning (package replay), in place: with a copy of the request, the middlewares in
//     front would find a body whose beginning is gone. The handler reads all of it.
//   - Matching: Match answers whether any common router could serve the request by the
//     pattern, and errs towards limiting. Skip exempts only the exact spelling. No matcher sees
//     a middleware behind this one that rewrites the path.
//   - Waiting: a request that cannot wait takes no slot of a leaky_bucket, because a slot that is
//     refunded is free only while it is the last. So the place in the queue comes first.
//   - Bans: a rule with a Ban has two more limits (package banned). Their checks stand behind
//     those of a request, and their results are taken out before anybody sees the decision.
//   - Chains: the request's context lists what each middleware decided, the outermost first.
//     FromContext joins the results. Only Writers, Deny and Config.Denied get no hidden rules.
//   - Metrics: decisions touch only atomics. No key is a label. Keys in logs and lists are an
//     HMAC with a secret of this process; those denied most are counted in sketches of 256.
//   - Warnings: the first 1000 requests of a set of rules are watched. A warning never names a
//     sender, since a client could ask to be trusted that way (TestMisconfigurations).
