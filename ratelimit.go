// Package ratelimit limits the requests of net/http servers. All limits of a request, such
// as one for its address, one for its user and one for its endpoint, are decided together:
// with Redis in one round trip. If one of them denies the request, none is charged.
//
//	limit, err := ratelimit.New(ratelimit.Config{Rules: []ratelimit.Rule{
//		{Name: "per-ip", Key: keyfunc.IP, Limit: ratelimit.PerMinute(200)},
//		{Name: "login", Match: []string{"POST /login"}, Key: keyfunc.IP, Limit: ratelimit.MustParse("5/1m sliding_log")},
//	}})
//	…
//	http.ListenAndServe("localhost:8080", limit.Handler(mux))
//
// This package is the front door: its names are those of the packages behind it.
//
//	middleware           Config, Rule and Middleware: which requests are limited, and how
//	middleware/rulefile  rules in files and in Redis, replaced while the program runs
//	middleware/metrics   Prometheus metrics
//	middleware/admin     a page for operators
//	middleware/shed      refuses requests while the process is overloaded
//	keyfunc              who is counted: address, API key, cookie, user, fields of the body
//	headers              what clients are told, and a Transport that obeys what servers tell
//	algorithms           limits, and the stores that count: Memory and Redis
//	algorithms/limitertest  limiters and a Redis for tests
//	failmode             the Guard, which decides while Redis cannot
//
// Start with [Config] and [Rule].
package ratelimit

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/middleware"
)

type (
	// Config is what New is given: see [middleware.Config].
	Config = middleware.Config
	// Rule is one limit on the requests that it matches: see [middleware.Rule].
	Rule = middleware.Rule
	// Ban denies a client for longer after repeated denials: see [middleware.Ban].
	Ban = middleware.Ban
	// Override is the limits of one client: see [middleware.Override].
	Override = middleware.Override
	// Middleware limits requests: see [middleware.Middleware].
	Middleware = middleware.Middleware
	// Limit is how much is allowed: see [algorithms.Limit].
	Limit = algorithms.Limit
	// Decision is the outcome of a request: see [algorithms.Decision].
	Decision = algorithms.Decision
)

// The fail modes: what Rule.Fail does while Redis cannot decide.
const (
	FailLocal  = failmode.Local  // count in this process, at its share of the limit; the default
	FailOpen   = failmode.Open   // admit
	FailClosed = failmode.Closed // deny with status 503
)

// What errors wrap.
var (
	ErrDenied = middleware.ErrDenied // Add: the limit has no room
	ErrNoRule = middleware.ErrNoRule // Add, Settle: no rule has this name
)

// New returns a Middleware; see [middleware.New]. Its error reports all mistakes at once.
func New(c Config) (*Middleware, error) { return middleware.New(c) }

// Redis returns a limiter that counts in Redis, for all processes with this namespace: a
// client made from the options, inside a [failmode.Guard]. It connects in the background.
// Close closes the client, too. See [failmode.Redis].
func Redis[O redis.Options | redis.ClusterOptions | redis.FailoverOptions | redis.RingOptions](options *O, namespace string) *failmode.Guard {
	return failmode.Redis(options, namespace)
}

// PerSecond is a limit of n units in each second; see [algorithms.PerSecond].
func PerSecond(n int64) Limit { return algorithms.PerSecond(n) }

// PerMinute is a limit of n units in each minute; see [algorithms.PerMinute].
func PerMinute(n int64) Limit { return algorithms.PerMinute(n) }

// PerHour is a limit of n units in each hour; see [algorithms.PerHour].
func PerHour(n int64) Limit { return algorithms.PerHour(n) }

// PerDay is a limit of n units in each day of a zone, such as "UTC" or "Europe/Berlin".
func PerDay(n int64, zone string) Limit { return algorithms.PerDay(n, zone) }

// PerMonth is a limit of n units in each month of a zone, such as "UTC" or "Europe/Berlin".
func PerMonth(n int64, zone string) Limit { return algorithms.PerMonth(n, zone) }

// MaxInFlight is a limit of n requests at once; see [algorithms.MaxInFlight].
func MaxInFlight(n int64) Limit { return algorithms.MaxInFlight(n) }

// Unlimited returns the limits that exempt a tier or a client; see [middleware.Unlimited].
func Unlimited() []Limit { return middleware.Unlimited() }

// MustParse returns the limit that text describes, such as "5/1m sliding_log"; see
// [algorithms.ParseLimit]. It panics if there is none: it is for limits in code.
func MustParse(text string) Limit {
	l, err := algorithms.ParseLimit(text)
	if err != nil {
		panic(fmt.Sprintf("ratelimit: %v", err))
	}
	return l
}

// FromContext returns the decision on a request, for handlers; see [middleware.FromContext].
func FromContext(ctx context.Context) (Decision, bool) { return middleware.FromContext(ctx) }

// Hold keeps a request from being over until release is called; see [middleware.Hold].
func Hold(ctx context.Context) (release func()) { return middleware.Hold(ctx) }

// Add asks for more units for a request, while it runs; see [middleware.Add].
func Add(ctx context.Context, rule string, units int64) error {
	return middleware.Add(ctx, rule, units)
}

// Settle sets what a request has cost under a rule; see [middleware.Settle].
func Settle(ctx context.Context, rule string, units int64) error {
	return middleware.Settle(ctx, rule, units)
}
