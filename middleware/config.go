package middleware

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/headers"
)

// A Config says what to limit and how. Only Limiter and Rules are required.
//
// A request is decided in this order: Skip; SkipFor; the rules whose Match fits
// and that are not Disabled; their keys, those that read the body last, and not
// for clients known to be over. For each rule that has a key follow its limit, by
// LimitFor, Tiers and Limit (TierFor is called at most once, and only for Tiers),
// then its cost, by CostFor, Costs and Cost, then Share, and then Shadow, by a hash
// of rule and key. One Take decides about all of them. Then come Observe, the
// response headers, and the response: the denial, the refusal, or the wait for a
// turn and the next handler. What that charges in the end says [Settle], or else
// ChargeOn when the response's status is written. A request that a key refuses is
// charged by the other rules first, which may deny it.
type Config struct {
	// Limiter decides: a *failmode.Guard or an *algorithms.Memory. A bare
	// *algorithms.Redis is refused, since it has no fail modes. If a limiter of
	// yours fails, rules in failmode.Open pass and all others answer 503. One that
	// decorates a Guard shows it by Unwrap() algorithms.Limiter, for the metrics.
	// The caller closes it.
	Limiter algorithms.Limiter

	// Rules are the limits. All that match a request apply, in one decision.
	Rules []Rule

	// Skip lists ServeMux patterns that are never limited, such as health checks.
	// A request must be spelled exactly so: its path is not cleaned for this, and
	// a trailing slash counts.
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

	// Share is this region's part of each limit, where each region has a Redis of
	// its own: 0.5. 0 means 1. Rates and bursts are rounded down, so that shares
	// that add up to 1 never admit more than the limit. New and SetRules refuse a
	// share that cannot hold a rule's largest cost. It applies to Limit, Tiers and
	// what LimitFor returns.
	Share float64

	// Headers sets response headers on requests that a rule applies to; nil means
	// [headers.XRateLimit]. A handler behind that sets such a header itself
	// replaces it.
	Headers headers.Writer

	// Denied responds to a denied request; nil means [headers.Deny]. Retry-After
	// and what Headers sets are already there. The decision is what clients may be
	// told: results of hidden rules are left out, or unnamed where they denied.
	// [FromContext] finds all results in the request's context.
	Denied func(http.ResponseWriter, *http.Request, algorithms.Decision)

	// Refused responds to a request whose key could not be resolved: a
	// *keyfunc.StatusError or another error; nil means its status, or 500. The
	// error names the rule: it is for logs, not for clients. Cache-Control is
	// already no-store, and the headers of the rules that were charged are set.
	Refused func(http.ResponseWriter, *http.Request, error)

	// Observe sees every decision of Handler and Take, hidden rules included,
	// before the response; nil means nothing does. It runs on the request's
	// goroutine.
	Observe func(*http.Request, algorithms.Decision)

	// MaxWaiting bounds the requests that wait for their turn in a leaky_bucket; 0
	// means 10,000. Further requests are denied. One key may have half of the
	// places, so that it cannot keep all others from waiting, and a sixteenth with
	// requests whose client may hang up unnoticed: over HTTP/1, net/http notices
	// that only when the body has been read. Bodies of up to 8 KiB are read while
	// the request waits. Longer ones, and those of unknown length, are not.
	MaxWaiting int

	// Registerer takes the metrics, which docs/metrics.md lists; nil means none.
	// Middlewares on one registry add up, and a limiter that they share counts
	// once. Metrics are never unregistered; create one Middleware per process
	// lifetime.
	Registerer prometheus.Registerer

	// Logger gets mistakes, hints and denials; nil means slog.Default().
	Logger *slog.Logger

	// DenialLogRate is how many denials each rule logs per second, at level Info;
	// 0 means 1, negative none. The next line counts those that were left out.
	DenialLogRate int

	// LogKeys shows keys in the log and in TopDenied. Otherwise they are hashed
	// with a secret of this process: equal keys look alike until it ends, and
	// nobody can find them by guessing addresses.
	LogKeys bool
}

// validate reports everything that is wrong with the fields other than Rules and
// Registerer, and compiles Skip.
func (c *Config) validate() (skip []pattern, err error) {
	errs := []error{validateLimiter(c.Limiter)}
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
