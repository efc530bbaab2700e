package middleware

import (
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// A Rule is one limit on the requests that it matches. Name, Key and Limit are required.
// All fields except Key, LimitFor and CostFor are plain data, as in a rule file. If data
// and a function are both set, the function's result applies, unless it is zero or
// invalid.
type Rule struct {
	// Name identifies the rule in headers, metrics, logs and Redis keys. Required and
	// unique; at most 64 letters, digits, '-', '_' and '.'.
	Name string

	// Match lists ServeMux patterns without a host, such as "POST /auth/login" or
	// "/files/{path...}". Their requests share one count. nil matches every request.
	// The path is cleaned and a trailing slash is ignored, so that no spelling of a
	// path escapes the rule.
	Match []string

	// Key identifies the client; [keyfunc.Everyone] counts all clients together.
	// Required.
	//
	// Requests for which it returns [keyfunc.ErrNoKey] share one count. If it returns
	// [keyfunc.ErrSkip], the rule does not apply. Any other error refuses the request:
	// a [*keyfunc.StatusError] with its own status if that is 400 to 499, all others
	// with 500. New and
	// SetRules report what the Validate method of [keyfunc.Describe] reports. If
	// several rules have the same Key, such as keyfunc.IP, the Middleware may resolve
	// it once per request for all of them. It calls a [keyfunc.Func] once for each
	// rule.
	Key keyfunc.Key

	// Limit is how many units each key may use.
	Limit algorithms.Limit
	// Tiers replaces Limit for the tier that Config.TierFor returns. [Unlimited]
	// exempts a tier. A request with an unknown tier has Limit, and increases the
	// metric ratelimit_unknown_tiers_total. Two names must not differ only in case.
	Tiers map[string]algorithms.Limit
	// LimitFor returns the limit of one request; [Unlimited] exempts the request. If
	// the limit is zero or unusable, Tiers and Limit apply. A limit is unusable if it
	// is invalid, if ChargeOn or Lease does not allow it, or if Config.Share leaves
	// less than one unit of it. Unusable limits are logged.
	LimitFor func(*http.Request) algorithms.Limit

	// Cost is how many units a request takes; 0 means 1. It must not exceed the Quota
	// of Limit and of each tier.
	Cost int64
	// Costs replaces Cost for requests that match a pattern, in the same count. The
	// syntax is that of Match, and the most specific pattern applies. Each pattern must
	// have requests in common with Match. Costs are at least 1, and must not exceed the
	// Quota of Limit and of each tier.
	Costs map[string]int64
	// CostFor returns the cost of one request. If it is 0 or less, Costs and Cost
	// apply. A request with a cost above the limit's Quota is denied. If the cost is
	// known only afterwards, the handler calls [Settle].
	CostFor func(*http.Request) int64
	// ChargeOn lists the response statuses that count, such as 401. Any other status
	// refunds the request when it is written. nil means that all count. Window
	// algorithms only.
	//
	// A request counts until its status is written. So the limit also bounds how many
	// requests of a key are in progress. A request stays charged if it has no response,
	// panics or is hijacked, or if the client disconnects. A Settle by the handler
	// takes precedence.
	ChargeOn []int

	// Ban denies a key for longer after repeated denials; zero means no ban. Keys in
	// shadow are not banned, and their denials do not count. The same holds for
	// requests without a key, which share one count.
	//
	// With ChargeOn, a denial does not count towards the ban while this process serves
	// requests of the key that may be refunded, such as several logins behind one
	// address. Each of these requests has that effect for 10 seconds at most.
	//
	// A ban belongs to the rule's name and stays when the limits change. A rule that is
	// Disabled for a time, or has no Ban for a time, enforces the ban again afterwards,
	// until the ban ends. The limiter's Ban and Reset lift it.
	Ban algorithms.Ban

	// Fail applies while the store cannot count; zero is [failmode.Local]. A limiter
	// without a failmode.Guard cannot count locally: if it fails, all modes but
	// [failmode.Open] deny with status 503.
	Fail failmode.Mode

	// Hidden keeps the rule out of response headers and problem documents. Use it if
	// its counts would reveal what others do, such as whether an account is in use. Its
	// denials have no name and no counts, but a Retry-After, which tells when a request
	// fits again. The decisions of [FromContext], Observe and Take include the rule: do
	// not show those to clients.
	Hidden bool

	// Shadow decides, counts and reports the rule without enforcing it. For a key in
	// shadow, an error of Key refuses no request.
	Shadow bool
	// Enforce is the fraction of keys, chosen by hash, for which a rule in Shadow is
	// enforced all the same: 0.1 for a tenth. All instances choose the same keys, and a
	// larger fraction includes the keys of a smaller one. All requests without a key,
	// or whose Key fails, count as one key. Enforce without Shadow is an error.
	Enforce float64
	// Disabled turns the rule off: its Key is not resolved. Counts expire as usual.
	Disabled bool
	// Lease takes units from the store in blocks, for keys with thousands of requests
	// per second, such as [keyfunc.Everyone]. The limit is not exceeded, but the unused
	// rest of a block is lost to other processes. Remaining is an estimate. Fixed and
	// sliding windows only; not with ChargeOn or Ban.
	Lease bool
}

// Unlimited returns the limit that exempts requests from a rule, for Rule.Tiers or from
// Rule.LimitFor.
func Unlimited() algorithms.Limit { return algorithms.Limit{Rate: -1} }

// clone copies all of a rule but its Key and functions.
func (r *Rule) clone() Rule {
	c := *r
	c.Match, c.ChargeOn = slices.Clone(r.Match), slices.Clone(r.ChargeOn)
	c.Tiers, c.Costs = maps.Clone(r.Tiers), maps.Clone(r.Costs)
	return c
}

// sameData reports whether two rules are equal, apart from functions and from keys of the
// same name.
func (r *Rule) sameData(other *Rule) bool {
	a, b := *r, *other
	nameA, nameB := keyfunc.Describe(a.Key).String(), keyfunc.Describe(b.Key).String()
	a.Key, a.LimitFor, a.CostFor = nil, nil, nil
	b.Key, b.LimitFor, b.CostFor = nil, nil, nil
	return nameA == nameB && reflect.DeepEqual(a, b)
}

// largestCost returns the largest cost that is known before there are requests.
func (r *Rule) largestCost() int64 {
	most := max(r.Cost, 1)
	for _, units := range r.Costs {
		most = max(most, units)
	}
	return most
}

// A tierLimit is a limit of a rule and the tier that has it.
type tierLimit struct {
	tier string // "" for the rule's own limit
	algorithms.Limit
}

// String names the limit, for errors.
func (l tierLimit) String() string {
	if l.tier == "" {
		return "the limit " + l.Limit.String()
	}
	return fmt.Sprintf("tier %q's limit %s", l.tier, l.Limit)
}

// limits returns the rule's own limit, and then those of its tiers that are limited, by
// name.
func (r *Rule) limits() []tierLimit {
	all := []tierLimit{{"", r.Limit}}
	for _, tier := range slices.Sorted(maps.Keys(r.Tiers)) {
		if r.Tiers[tier] != Unlimited() {
			all = append(all, tierLimit{tier, r.Tiers[tier]})
		}
	}
	return all
}

func isWindow(l algorithms.Limit) bool {
	switch algorithms.Algorithm(algorithmOf(l)) {
	case algorithms.FixedWindow, algorithms.SlidingWindow, algorithms.SlidingLog:
		return true
	}
	return false
}

// grantsBlocks reports whether a rule with a Lease can have the limit.
func grantsBlocks(l algorithms.Limit) bool {
	return isWindow(l) && l.Algorithm != algorithms.SlidingLog
}
