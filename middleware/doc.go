// Package middleware limits how often clients may call HTTP handlers. It wraps an
// [http.Handler], resolves the keys of a request, takes all rules that match it in
// one decision, and answers 429 if one is over its limit.
//
// Import it as ratelimit:
//
//	import ratelimit "github.com/seed75154129/ratelimit/middleware"
package middleware
