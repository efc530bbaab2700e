package middleware

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/headers"
	"github.com/seed75154129/ratelimit/shed"
)

// A Config says what to limit and how. Only Limiter and Rules are required.
//
// A request is decided in this order: Skip; SkipFor; the rules whose Match fits
// and that are not Disabled; their keys, those that read the body last, and not
// for clients known to be over a limit; the Shedder. For each rule that has a key follow its
// limit, by LimitFor, Tiers and Limit (TierFor is called at most once, and only
// for Tiers), its cost, by CostFor, Costs and Cost, then Share, and Shadow, by a
// hash of rule and key. One Take decides about all of them. Then the middleware
// sets the response headers and calls Observe. It responds with the denial or the
// refusal, or it waits for the request's turn and calls the next handler. What a
// request is charged in the end is what [Settle] says, or else ChargeOn when the
// status of the response is written. If a key refuses a request, the other rules
// are charged first, and may deny it.
type Config struct {
	// Limiter decides: a *failmode.Guard, an *algorithms.Memory, or your own. The
	// caller closes it. A bare *algorithms.Redis is refused, because it has no fail
	// modes.
	//
	// If a limiter of yours fails, rules in failmode.Open pass and all others
	// answer 503. If it wraps a Guard, it must have the method
	// Unwrap() algorithms.Limiter, for the metrics.
	Limiter algorithms.Limiter

	// Rules are the limits. All that match a request apply, in one decision.
	Rules []Rule

	// Skip lists ServeMux patterns that are never limited, such as health checks.
	// They match exactly: the path is not cleaned, and a trailing slash counts.
	Skip []string

	// SkipFor reports whether a request is not limited: a preflight, or a client on
	// a safelist (see keyfunc.Proxies.In). nil means none. Whoever can make it say
	// true has no limits, so it must not believe what a client can write.
	SkipFor func(*http.Request) bool

	// TierFor names the tier of a request, for Rule.Tiers; "" is none. nil means
	// none for all. It is called at most once per request, and only if a rule with
	// Tiers needs it. It must not believe what a client can write, such as a header
	// that nobody has verified.
	TierFor func(*http.Request) string

	// Shedder refuses requests with 503 while this process is overloaded; nil means
	// none. It is asked after Skip and SkipFor, also for requests that no rule matches,
	// and before the Limiter: what is shed has charged nothing. While requests wait for
	// a place, those that are known to be denied get their denial without one.
	Shedder *shed.Shedder

	// Share is this region's part of each limit, where each region has a Redis of
	// its own: 0.5. 0 means 1. Rates and bursts are rounded down, so that shares
	// that add up to 1 never admit more than the limit. New and SetRules refuse a
	// share that cannot hold a rule's largest cost. It applies to Limit, Tiers and
	// what LimitFor returns.
	Share float64

	// Headers sets response headers on requests that a rule applies to; nil means
	// [headers.XRateLimit]. The handler may replace them.
	Headers headers.Writer

	// Denied responds to a denied request; nil means [headers.Deny]. Retry-After
	// and the fields of Headers are already set. The decision may be shown to
	// clients: it has no results of hidden rules, except that those which denied
	// are there without a name. [FromContext] returns all results.
	Denied func(http.ResponseWriter, *http.Request, algorithms.Decision)

	// Refused responds to a request whose key could not be resolved; nil means the
	// status of a *keyfunc.StatusError, and 500 for other errors. The error names
	// the rule: it is for logs, not for clients. Cache-Control is already no-store,
	// and the headers of the rules that were charged are set.
	Refused func(http.ResponseWriter, *http.Request, error)

	// Observe is called with every decision of Handler and Take, including hidden
	// rules, before the response. It runs on the request's goroutine.
	Observe func(*http.Request, algorithms.Decision)

	// MaxWaiting bounds the requests that wait for their turn in a leaky_bucket; 0
	// means 10,000. Further requests are denied. One key may have half of the
	// places, so that it cannot keep all others from waiting.
	//
	// One key may have a sixteenth of the places with requests whose client may
	// hang up unnoticed: over HTTP/1, net/http notices that only once the body has
	// been read. The middleware reads bodies of up to 8 KiB while the request
	// waits, but not longer ones or those of unknown length.
	MaxWaiting int

	// Logger receives mistakes, hints and denials; nil means slog.Default().
	Logger *slog.Logger

	// DenialLogRate is how many denials each rule logs per second, at level Info;
	// 0 means 1, negative none. The next line has the number of those left out.
	DenialLogRate int

	// LogKeys shows keys in the log and in TopDenied. Otherwise keys are hashed
	// with a secret of this process: equal keys look alike until the process ends,
	// and nobody can find addresses by hashing guesses.
	LogKeys bool
}

// validate reports everything that is wrong with the fields other than Rules, and
// compiles Skip.
func (c *Config) validate() (skip []pattern, err error) {
	errs := []error{validateLimiter(c.Limiter), validateShedder(c.Shedder)}
	for _, text := range c.Skip {
		p, err := parsePattern(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("middleware: skip: %w", err))
		}
		skip = append(skip, p)
	}
	if c.MaxWaiting < 0 {
		errs = append(errs, fmt.Errorf("middleware: max waiting: must not be negative, got %d", c.MaxWaiting))
	}
	return skip, errors.Join(errs...)
}
