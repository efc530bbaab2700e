// Package middleware limits how often clients may call HTTP handlers: it wraps
// an [http.Handler], resolves who is asking, takes every rule that matches the
// request in one decision, and answers 429 to what is over a limit.
//
// Import it as ratelimit:
//
//	import ratelimit "github.com/seed75154129/ratelimit/middleware"
package middleware
