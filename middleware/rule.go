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

// A Rule is one limit on the requests that it matches. Only Name, Key and Limit
// are required. All fields but Key, LimitFor and CostFor are plain data, as in a
// rule file. Where data and a function are both set, what the function returns
// wins, unless it is zero.
type Rule struct {
	// Name appears in headers, metrics, logs and Redis keys. Required and unique;
	// letters, digits, '-', '_' and '.', at most 64.
	Name string

	// Match lists ServeMux patterns that share one count, such as
	// "POST /auth/login" or "/files/{path...}"; nil matches every request.
	// Patterns with a host are refused. The path is cleaned and a trailing slash is
	// ignored, so that no other spelling of a path escapes its rule.
	Match []string

	// Key says who is limited; [keyfunc.Everyone] limits all together. Required.
	//
	// Requests for which it returns [keyfunc.ErrNoKey] share one count. For
	// [keyfunc.ErrSkip] the rule does not apply. Any other error refuses the
	// request, a [*keyfunc.StatusError] with its status. New and SetRules call its
	// method Validate, if it has one. Rules that share one Key, such as keyfunc.IP,
	// mostly share its answer for a request, too; a [keyfunc.Func] is called for each.
	Key keyfunc.Key

	// Limit is how much each key may use.
	Limit algorithms.Limit
	// Tiers replaces Limit for the tier that Config.TierFor names; [Unlimited]
	// exempts a tier. An unknown tier has Limit, and is counted in the metric
	// ratelimit_unknown_tiers_total. Names differ in more than case.
	Tiers map[string]algorithms.Limit
	// LimitFor returns a request's limit; the zero Limit means what Tiers and
	// Limit say, and so, with a line in the log, does an invalid one.
	LimitFor func(*http.Request) algorithms.Limit

	// Cost is how many units a request takes; 0 means 1. It must not be above the
	// limit's Quota.
	Cost int64
	// Costs replaces Cost for requests that match a pattern, the most specific
	// first, in the same count. Patterns are matched as those of Match, and each must
	// have requests that Match has; costs are at least 1, and at most what the limit
	// and each tier can hold.
	Costs map[string]int64
	// CostFor returns a request's cost; 0 means what Costs and Cost say, and so does
	// a negative one. A cost above what the limit can hold is denied. Where the cost
	// is known only afterwards, the handler calls [Settle].
	CostFor func(*http.Request) int64
	// ChargeOn lists the response statuses that stay charged, such as 401; others
	// give back when they are written. nil means all. Window algorithms only. No
	// response, a panic, a hijack or a client that has left stays charged. Requests
	// under way count. A Settle by the handler takes precedence.
	ChargeOn []int

	// Ban denies a key for longer after repeated denials; zero means no ban. Keys in
	// shadow are not banned, and their denials do not count. Neither are requests
	// without a key, which share one. With ChargeOn, a denial
	// does not count while this process has requests of the key under way whose
	// charge may be given back: several people behind one address who log in at once
	// are no attack. A ban survives SetRules, as long as the rule keeps its name and
	// has a Ban. The limiter's Ban and Reset lift it.
	Ban algorithms.Ban

	// Fail says what to do while the store cannot count; zero is [failmode.Local].
	Fail failmode.Mode

	// Hidden keeps the rule out of response headers and problem documents. Use it
	// if its counts would reveal what others do, such as whether an account is in
	// use. Its denials have a Retry-After but no name. The decisions of
	// [FromContext], Observe and Take include it: do not show those to clients.
	Hidden bool

	// Shadow is the fraction of keys, chosen by hash, for which the rule is
	// decided, counted and reported but not enforced: 0 none, 1 all. All instances
	// have the same keys, and a smaller fraction has some of them. A key in shadow
	// refuses no request. Requests that have no key, or an error for one, count as
	// one key.
	Shadow float64
	// Disabled turns the rule off: its Key is not resolved. Counts expire as they
	// would.
	Disabled bool
	// Lease takes units from the store in blocks, for keys that get thousands of
	// requests a second, such as [keyfunc.Everyone]. The limit is never exceeded, but
	// units of a block that is not used up are not admitted. Remaining is an
	// estimate. Fixed and sliding windows only; not with ChargeOn or Ban.
	Lease bool
}

// Unlimited exempts a request from the rule, in Rule.Tiers or from Rule.LimitFor.
func Unlimited() algorithms.Limit { return algorithms.Limit{Rate: -1} }

// clone copies what of a rule is not a Key or a function.
func (r *Rule) clone() Rule {
	c := *r
	c.Match, c.ChargeOn = slices.Clone(r.Match), slices.Clone(r.ChargeOn)
	c.Tiers, c.Costs = maps.Clone(r.Tiers), maps.Clone(r.Costs)
	return c
}

// sameData reports whether two rules differ at most in functions, and in keys of
// the same name.
func (r *Rule) sameData(other *Rule) bool {
	a, b := *r, *other
	nameA, nameB := keyName(a.Key), keyName(b.Key)
	a.Key, a.LimitFor, a.CostFor = nil, nil, nil
	b.Key, b.LimitFor, b.CostFor = nil, nil, nil
	return nameA == nameB && reflect.DeepEqual(a, b)
}

func keyName(k keyfunc.Key) string {
	if s, ok := k.(fmt.Stringer); ok {
		return s.String()
	}
	return fmt.Sprintf("%T", k)
}

// largestCost is the largest that is known before there are requests.
func (r *Rule) largestCost() int64 {
	most := max(r.Cost, 1)
	for _, units := range r.Costs {
		most = max(most, units)
	}
	return most
}

// A tierLimit is one of the limits that a rule may have.
type tierLimit struct {
	tier string // of the rule's own limit: ""
	algorithms.Limit
}

// String says which limit it is, for errors.
func (l tierLimit) String() string {
	if l.tier == "" {
		return "the limit " + l.Limit.String()
	}
	return fmt.Sprintf("tier %q's limit %s", l.tier, l.Limit)
}

// limits returns the rule's own limit, and then those of its tiers that have one,
// by name.
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
