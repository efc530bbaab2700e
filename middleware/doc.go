// Package middleware limits how often clients may call HTTP handlers. It wraps an
// [http.Handler], resolves the keys of a request, takes all rules that match it in
// one decision, and answers 429 if one is over its limit. A denied request is
// charged by no rule.
//
// Import it as ratelimit, because chi has a package of the same name:
//
//	import ratelimit "github.com/seed75154129/ratelimit/middleware"
//
// # Where to begin
//
// Read [Rule], [Config] and [Middleware] first. A [Rule] says which requests
// count together and how many are allowed; a [Config] has the rules and the
// limiter that decides; [New] checks all of it, reports every mistake at once, and
// returns a [Middleware], whose Handler goes around your handler.
//
// The other packages, in the order in which you may need them:
//
//	keyfunc                 who is limited: an address, a user, an API key
//	algorithms              how it is counted: limits, and the limiters Redis and Memory
//	failmode                what happens while Redis is away
//	shed                    what is refused while the server is overloaded
//	headers                 what clients are told, and a client that obeys
//	middleware/metrics      what was counted, for Prometheus
//	middleware/rulefile     rules from YAML or JSON, reloaded while the service runs
//	algorithms/limitertest  tests of your own limits, in fake time
//
// # Behind the middleware
//
// A handler finds what was decided by [FromContext], and says what a request has
// cost by [Settle]. A reverse proxy merges the headers of its upstream by
// [ModifyResponse].
package middleware
