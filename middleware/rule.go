package middleware

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/internal/naming"
	"github.com/seed75154129/ratelimit/internal/view"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// A Rule is one limit on the requests that it matches. Name, Key, and Limit or Limits are
// required. All fields except Key, LimitsFor and CostFor are plain data, as in a rule
// file. Unless a function's result is zero or invalid, it takes precedence over all
// data but Overrides.
type Rule struct {
	// Name identifies the rule in headers, metrics, logs and Redis keys. Required and
	// unique; at most 64 letters, digits, '-', '_' and '.'.
	Name string

	// Match lists ServeMux patterns without a host, such as "POST /auth/login" or
	// "/files/{path...}". They share one count for each key. nil matches every request.
	// The path is cleaned and a trailing slash is ignored, so that no spelling of a
	// path escapes the rule.
	Match []string

	// Key identifies the client; [keyfunc.Everyone] counts all clients together.
	// Required.
	//
	// Requests for which it returns [keyfunc.ErrNoKey] share one count. If it returns
	// [keyfunc.ErrSkip], the rule does not apply. Any other error refuses the request: a
	// [*keyfunc.StatusError] with its own status if that is 400 to 499, all others with 500.
	// New and SetRules report what the Validate method of keyfunc.Describe(Key) reports. If
	// several rules have the same Key, such as keyfunc.IP, the Middleware may resolve it
	// once per request for all of them. It calls a [keyfunc.Func] once for each rule.
	Key keyfunc.Key

	// Limit is how many units each key may use. Set Limit or Limits.
	Limit algorithms.Limit
	// Limits is Limit for several windows, such as 10 a second and 100,000 a month: a
	// request passes if it fits all of them, and takes its cost from each. There are at most
	// 8 windows, and no two have the same algorithm and period. An [algorithms.InFlight]
	// limit must be the only one.
	Limits []algorithms.Limit
	// Tiers replaces Limit or Limits for the tier that Config.TierFor returns.
	// [Unlimited] exempts a tier. A request with an unknown tier has Limit or Limits, and
	// increases the metric ratelimit_unknown_tiers_total. A key that changes its tier
	// keeps the counts of windows that both tiers have. Two names must not differ only in
	// case.
	Tiers map[string][]algorithms.Limit
	// LimitsFor returns the limits of one request; [Unlimited] exempts the request. If it
	// returns none or unusable ones, Tiers and Limit apply. Limits are unusable if
	// one is invalid, if ChargeOn, Ban or Sync does not allow them, if one is in_flight and
	// the rule has costs, or if Config.Share leaves a limit with less than one unit. Unusable
	// limits are logged. A limit that holds less than a request costs denies it. The Middleware
	// does not change the returned slice.
	LimitsFor func(*http.Request) []algorithms.Limit
	// Overrides replace all limits above for single clients.
	Overrides []Override

	// Cost is how many units a request takes; 0 means 1. It must not exceed the Quota
	// of any of the rule's limits.
	Cost int64
	// Costs replaces Cost for requests that match a pattern; their count stays the same. The
	// syntax is that of Match, and the most specific pattern applies. Each pattern must have
	// requests in common with Match. Costs are at least 1, and must not exceed the Quota of
	// any of the rule's limits.
	Costs map[string]int64
	// CostFor returns the cost of one request that the rule limits. 0 is free: the request
	// passes even without room, whatever Fail says, and is charged nothing but what [Add]
	// takes. If the limiter can Peek, and answers, it is told what is left, and only a Ban
	// denies it. Negative means that Costs and Cost apply. If it exceeds the Quota of a limit,
	// the request is denied. If the cost is known only afterwards, the handler calls [Settle].
	CostFor func(*http.Request) int64
	// ChargeOn lists the response statuses that count, such as 401. When any other status
	// is written, the request is refunded. nil means that all statuses count. Not for
	// buckets or in_flight.
	//
	// Until its status is written, every request counts. So the limit also bounds how many
	// requests of a key are in progress. A request stays charged if its handler panics, takes
	// the connection over, or writes nothing, even though net/http sends a 200 then: call
	// WriteHeader. It also stays charged if the client disconnects. A Settle or an Add before
	// the status is written takes precedence.
	ChargeOn []int

	// Ban denies a key for longer after repeated strikes; zero means no ban. A strike is a
	// denial or, with ChargeOn, only a response whose status counts: a denial may be due to
	// requests whose status is still to come, such as several logins behind one address. The
	// limits, or a region's Share of them, must be able to admit After such responses within
	// Within. As many requests of a key as the limits admit may be in progress when its ban
	// begins, so keep them at After or below.
	//
	// Keys in shadow are not banned, and their denials are no strikes. The same holds for
	// requests without a key, which share one count. With several windows, Within is required.
	//
	// A ban belongs to the rule's name and stays when the limits change. A rule that is left
	// out for a time, or has no Ban for a time, enforces the ban again afterwards, until the
	// ban ends. [Middleware.Ban] bans by hand, and lifts bans.
	Ban Ban

	// Fail applies while the store cannot count; zero is [failmode.Local]. A limiter
	// without a failmode.Guard cannot count locally: if it fails, all modes but
	// [failmode.Open] deny with status 503.
	Fail failmode.Mode

	// RetryAfter is what a client is told that a MaxInFlight limit denies, whose requests end
	// nobody knows when; 0 means a second. At most an hour. Only for such limits.
	RetryAfter time.Duration

	// Hidden keeps the rule out of response headers and problem documents. Use it if
	// its counts would reveal what others do, such as whether an account is in use. Its
	// denials have no name and no counts, but a Retry-After, which tells when a request
	// fits again. The decisions of [FromContext], Observe and Take include the rule: do
	// not show these decisions to clients.
	Hidden bool

	// Shadow decides, counts and reports the rule without enforcing it. For keys in shadow,
	// an error of Key refuses no request, and several windows count separately: each charges
	// the requests that fit it, even if another window has no room.
	Shadow bool
	// Enforce is the fraction of keys, chosen by hash, for which a rule in Shadow is
	// enforced all the same: 0.1 for a tenth. All instances choose the same keys, and a
	// larger fraction includes the keys of a smaller one. All requests without a key,
	// or whose Key fails, count as one key. Enforce without Shadow is an error.
	Enforce float64
	// Sync is for keys with thousands of requests per second, such as [keyfunc.Everyone]: each
	// process decides by a copy of the store's state, and tells the store each Sync what was
	// used. All processes together admit at most a tenth more than the limit; see
	// [failmode.Guard]. 20 ms to 1 s, and at most a twentieth of each period; 0 has the store
	// decide each request. Not with ChargeOn or Ban, nor for sliding_log, leaky_bucket and
	// in_flight.
	Sync time.Duration

	// Note is for operators, such as why the rule exists or who to ask; "" is none. One line
	// of visible characters; a rule file has at most 1000. Clients never see it.
	Note string
}

// clone copies all of a rule but its Key and functions.
func (r *Rule) clone() Rule {
	c := *r
	c.Match, c.ChargeOn = slices.Clone(r.Match), slices.Clone(r.ChargeOn)
	c.Limits, c.Tiers, c.Costs = slices.Clone(r.Limits), maps.Clone(r.Tiers), maps.Clone(r.Costs)
	for tier, limits := range c.Tiers {
		c.Tiers[tier] = slices.Clone(limits)
	}
	c.Overrides = slices.Clone(r.Overrides)
	for i := range c.Overrides {
		c.Overrides[i] = c.Overrides[i].clone()
	}
	return c
}

// An Override is the limits of one client, in place of all others of its rule.
type Override struct {
	// Client names the client as for [Middleware.Checks], by one plain value for each
	// part of the rule's Key. It must stand for one key. So for [keyfunc.First] the value
	// begins with the number of the key that has the value, as in "2:192.0.2.1". For a Key
	// that is Secret, write the key as it is stored, such as "apikey:" and 22 letters: the
	// error for a plain value shows the stored key.
	Client []string
	// Limits are all limits of the client, so list every window. [Unlimited] exempts the
	// client. Windows that it had before keep their counts; all others begin at 0.
	Limits []algorithms.Limit
	// Until ends the override, by the clock of this process; the zero time means never. Its
	// year is 2000 to 9998. The end is logged at the client's next request.
	Until time.Time
	// Note is for operators, such as a ticket.
	Note string
}

// clone copies an override.
func (o Override) clone() Override {
	o.Client, o.Limits = slices.Clone(o.Client), slices.Clone(o.Limits)
	return o
}

// ended reports whether the override has ended.
func (o *Override) ended() bool { return !o.Until.IsZero() && !time.Now().Before(o.Until) }

// Unlimited returns the limits that exempt requests from a rule, for use in Tiers,
// LimitsFor or an [Override].
func Unlimited() []algorithms.Limit { return []algorithms.Limit{unlimited} }

var unlimited = algorithms.Limit{Rate: -1}

// exempts reports whether limits are [Unlimited].
func exempts(limits []algorithms.Limit) bool { return len(limits) == 1 && limits[0] == unlimited }

// own returns Limit or Limits.
func (r *Rule) own() []algorithms.Limit {
	if r.Limits != nil {
		return r.Limits
	}
	return []algorithms.Limit{r.Limit}
}

// A limitSet is limits that a request may have together: the rule's own, or those of a tier or
// an override.
type limitSet struct {
	field      string // of Rule; "" is what LimitsFor has returned
	at         []any  // which part of the field
	by         string // "" is the rule itself
	all, valid []algorithms.Limit
}

// name names a limit of the set.
func (set *limitSet) name(l algorithms.Limit) string {
	if set.by == "" {
		return "the limit " + l.String()
	}
	return set.by + "'s limit " + l.String()
}

// limited are the valid limits, if they are not one client's.
func (set *limitSet) limited() []algorithms.Limit {
	if set.field == "Overrides" {
		return nil
	}
	return set.valid
}

// sets returns the limits of the rule itself, of its tiers that are limited, by name, and of
// its overrides.
func (r *Rule) sets() []*limitSet {
	sets := []*limitSet{{field: "Limit", all: r.own()}}
	if r.Limits != nil {
		sets[0].field = "Limits"
	}
	for _, tier := range slices.Sorted(maps.Keys(r.Tiers)) {
		sets = append(sets, &limitSet{field: "Tiers", at: []any{tier}, by: fmt.Sprintf("tier %q", tier), all: r.Tiers[tier]})
	}
	for i := range r.Overrides {
		sets = append(sets, &limitSet{field: "Overrides", at: []any{i, "limit"}, by: fmt.Sprintf("overrides[%d]", i), all: r.Overrides[i].Limits})
	}
	return slices.DeleteFunc(sets, func(set *limitSet) bool { return set.by != "" && exempts(set.all) })
}

func (r *Rule) hasHeld() bool {
	return slices.ContainsFunc(r.sets(), func(set *limitSet) bool { return slices.ContainsFunc(set.all, isHeld) })
}

// algorithmOf returns a limit's algorithm, also if Algorithm is 0.
func algorithmOf(l algorithms.Limit) algorithms.Algorithm {
	return algorithms.Algorithm(naming.Limit(l).Number())
}

func isWindow(l algorithms.Limit) bool {
	row := naming.Limit(l).Row()
	return row != nil && (row.Aligned || row.Log || row.Calendar)
}

// refill is how long a bucket needs to refill, in ns; as a number that may be above any
// duration.
func refill(l algorithms.Limit) float64 {
	return float64(l.Quota()) / float64(l.Rate) * float64(l.Period)
}

// isHeld reports whether requests hold what they are charged by a limit.
func isHeld(l algorithms.Limit) bool { return l.Algorithm == algorithms.InFlight }

// leadsToBan reports whether denials by a limit may lead to a ban.
func leadsToBan(l algorithms.Limit) bool { return l.Calendar == "" }

// windowName names the window of a limit, such as "1m" or "month@UTC".
func windowName(l algorithms.Limit) string {
	if isHeld(l) {
		return "in flight"
	}
	return cmp.Or(l.Calendar, view.Span(l.Period))
}
