package middleware

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/headers"
	"github.com/seed75154129/ratelimit/internal/pattern"
)

// A Config says what to limit and how. Rules are required.
//
// A request passes these steps:
//
//  1. Skip and SkipFor exempt it.
//  2. A rule applies if its Match fits.
//  3. Each such rule gets its key, its limits (Overrides, LimitsFor, Tiers, Limit; then
//     Share), its cost (CostFor, Costs, Cost), and whether the key is in shadow.
//  4. Rules whose keys read the body come last. They are left out for a client that this
//     process knows to be over another limit.
//  5. One Take decides all rules together.
//  6. The middleware calls Observe and sets the response headers.
//  7. The middleware responds with the denial or the refusal, if there is one. If not, it
//     waits for the delay of a leaky_bucket, and calls the next handler.
//  8. [Settle] or a refund of ChargeOn, whichever comes first, sets the final cost. If
//     neither comes, [Add] does. When the request is over, the limiter settles what has
//     changed, and the middleware calls Settled.
//
// If the Key of a rule refuses a request, the other rules are charged first. If one of
// them denies the request, the response is the denial.
type Config struct {
	// Limiter makes the decisions: a *failmode.Guard, an *algorithms.Memory, or your
	// own. nil means a new Memory, so that each process counts for itself. The caller closes
	// it. A bare *algorithms.Redis is rejected, because it has no fail modes.
	//
	// If a limiter of your own fails, rules with failmode.Open pass, and all others
	// deny with status 503. It also fails if a decision has too few results, or if Allowed
	// contradicts them; a Check, At or Source that it leaves out is filled in. It is given one
	// second for a decision, and its context does not end with the request. If it has a Guard in a field, it must have the method
	// Unwrap() algorithms.Limiter, which returns the Guard.
	Limiter algorithms.Limiter

	// Rules are the limits. All rules that match a request apply, in one decision.
	Rules []Rule

	// Skip lists ServeMux patterns that are never limited, such as health checks.
	// They match exactly: the path is not cleaned, and a trailing slash counts.
	Skip []string

	// SkipFor reports whether a request is not limited, such as one of a client on a
	// safelist (see keyfunc.Proxies.In). nil exempts none. A client that can make SkipFor
	// return true is unlimited: never base it on unverified input, nor on the method, since
	// handlers may serve OPTIONS like POST. Preflights do not reach the Middleware if it is
	// inside the CORS middleware.
	SkipFor func(*http.Request) bool

	// TierFor returns the name of a request's tier, for Rule.Tiers; "" means no tier. If
	// TierFor is nil, no request has one. It is called at most once per request, and only
	// if a rule with Tiers has no limit by Overrides or LimitsFor. Never base it on
	// unverified input, such as a header that a client can write.
	TierFor func(*http.Request) string

	// Share is this region's fraction of each limit, such as 0.5, if each region has its
	// own Redis. 0 means 1. It applies to all limits of a rule. Rates and bursts are
	// rounded down, so that shares which add up to 1 never admit more than the limit. New
	// and SetRules reject a rule if its largest cost exceeds this share of a limit.
	Share float64

	// Headers sets response headers on requests that a rule applies to; nil means
	// [headers.XRateLimit]. The handler may replace them.
	Headers headers.Writer

	// Denied responds to a denied request; nil means [headers.Deny]. Retry-After and
	// the fields of Headers are already set. Cache-Control is not: Denied should set it
	// to no-store, as [headers.Deny] does. The decision may be shown to clients:
	// results of hidden rules are left out or, if they denied the request, blank but for
	// RetryAfter, Source and At: no name, no limit, no counts.
	// [FromContext] returns all results.
	Denied func(http.ResponseWriter, *http.Request, algorithms.Decision)

	// Refused responds to a request whose key could not be resolved; nil means the status
	// of a *keyfunc.StatusError from 400 to 499, and status 500 for all other errors. The
	// error names the rule: it is for logs, not for clients. Cache-Control is already
	// no-store, and the headers of the charged rules are set.
	Refused func(http.ResponseWriter, *http.Request, error)

	// Observe is called before the response, with every decision of Handler and Take,
	// results of hidden rules included. It runs on the request's goroutine.
	Observe func(*http.Request, algorithms.Decision)

	// Settled is called once for each request that Handler has admitted and charged, with
	// the final decision: when the handler has returned and every [Hold] is released. It is
	// also called if a key has refused the request, or if the client has left while the
	// request waited. It runs on the goroutine that has ended the request. If the process
	// dies, Settled is not called for requests under way, so it is no bill. If a rule could
	// not be settled, its result has an Err, and the limiter counts its Charged or more.
	Settled func(*http.Request, algorithms.Decision)

	// MaxWaiting is the largest number of requests that wait because a leaky_bucket
	// delays them; 0 means 10,000. Further requests are denied. One key has at most half of
	// the places, so that other keys can have the rest.
	//
	// Over HTTP/1, net/http notices that a client hangs up only once the body has been
	// read. While a request waits, the middleware reads a body of up to 8 KiB, but none that
	// is larger or of unknown length. One key's requests whose bodies are not read have at
	// most a sixteenth of the places.
	MaxWaiting int

	// Logger receives errors, configuration warnings and denials; nil means
	// slog.Default().
	Logger *slog.Logger

	// DenialLogRate is how many denials, and refusals by its Key, each rule logs per second,
	// at level Info; 0 means 1, negative means none. The rule's next line has the number of
	// those that were left out.
	DenialLogRate int

	// LogKeys shows keys in the log, in TopDenied and for operators. If it is false, keys are
	// hashed with LogSecret, so that addresses cannot be found by hashing guesses.
	LogKeys bool

	// LogSecret hashes keys, so that equal keys look alike in all processes with the same
	// secret. It has at least 16 bytes; use 32 random ones. nil means a random secret of
	// this process: then equal keys look alike only within the process.
	LogSecret []byte
}

// minSecret is how many bytes Config.LogSecret has at least.
const minSecret = 16

// validate reports everything that is wrong with the fields other than Rules, and
// compiles Skip.
func (c *Config) validate() (skip []pattern.Pattern, err error) {
	errs := []error{validateLimiter(c.Limiter)}
	for _, text := range c.Skip {
		p, err := pattern.Parse(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("middleware: skip: %w", err))
		}
		skip = append(skip, p)
	}
	if n := len(c.LogSecret); c.LogSecret != nil && n < minSecret {
		errs = append(errs, fmt.Errorf("middleware: log secret: has %d bytes, which can be guessed; use 32 random ones, or nil for one of this process", n))
	} else if n > 0 && len(slices.Compact(slices.Clone(c.LogSecret))) == 1 {
		errs = append(errs, errors.New("middleware: log secret: all of its bytes are equal, which can be guessed; use 32 random ones, or nil for one of this process"))
	}
	if c.MaxWaiting < 0 {
		errs = append(errs, fmt.Errorf("middleware: max waiting: must not be negative, got %d", c.MaxWaiting))
	}
	return skip, errors.Join(errs...)
}
