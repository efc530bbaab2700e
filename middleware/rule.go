package middleware

import (
	"errors"
	"net/http"
	"reflect"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/internal/hint"
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

// A rule is a Rule made ready for requests.
type rule struct {
	source    Rule      // a copy of it
	patterns  []pattern // none matches every request
	key       keyfunc.Key
	readsBody bool // of the key
	shared    int  // where the key's answer is kept for other rules; 0 if no other has this key
	hidden    bool
	disabled  bool
	traits    hint.Traits      // of the key
	check     algorithms.Check // without the key
	queue     bool             // of the check's limit
	plain     bool             // the check needs only the key
	terms     terms            // what it needs otherwise
}

// spares reports whether a denial that may come of charges which are given back
// later does not count towards the rule's ban.
func (r *rule) spares() bool { return r.terms.chargeOn != nil && r.check.Ban != (algorithms.Ban{}) }

// applies reports whether the rule is on and matches a request.
func (r *rule) applies(t *target) bool { return !r.disabled && r.matches(t) }

func (r *rule) matches(t *target) bool {
	for i := range r.patterns {
		if r.patterns[i].match(t) {
			return true
		}
	}
	return len(r.patterns) == 0
}

// compile validates rules and makes them ready, with a share of each limit.
func compile(rules []Rule, s share) ([]rule, error) {
	if err := ValidateRules(rules); err != nil {
		return nil, err
	}
	if err := errors.Join(s.validate(rules)...); err != nil {
		return nil, err
	}
	compiled := make([]rule, len(rules))
	for i := range rules {
		r := &rules[i]
		c := &compiled[i]
		c.source = r.clone()
		for _, text := range r.Match {
			p, _ := parsePattern(text) // it is valid
			c.patterns = append(c.patterns, p)
		}
		reader, ok := r.Key.(interface{ ReadsBody() bool })
		c.key, c.readsBody = r.Key, ok && reader.ReadsBody()
		c.traits = hint.Of(r.Key)
		c.hidden, c.disabled = r.Hidden, r.Disabled
		c.terms = terms{limitFor: r.LimitFor, costFor: r.CostFor, costs: compileCosts(r.Costs), chargeOn: c.source.ChargeOn, shadow: r.Shadow}
		own, _ := c.fit(r.Limit, s) // they are valid
		for tier, l := range r.Tiers {
			if c.terms.tiers == nil {
				c.terms.tiers = make(map[string]limit)
			}
			c.terms.tiers[tier], _ = c.fit(l, s)
		}
		c.plain, c.queue = c.terms.plain(), own.queue
		c.check = algorithms.Check{Rule: r.Name, Limit: own.Limit, Cost: max(r.Cost, 1), Fail: r.Fail, Shadow: r.Shadow == 1,
			Lease: r.Lease, Ban: r.Ban, NoCache: r.ChargeOn != nil || r.hasHeld() || r.Ban != (algorithms.Ban{})}
	}
	shareKeys(compiled)
	return compiled, nil
}

// maxShared is how many keys' answers a request keeps for further rules.
const maxShared = 2

// shareKeys gives a place to keys that several rules have, which are asked once
// for each request. A [keyfunc.Func] cannot be compared, so it is asked each time.
func shareKeys(rules []rule) {
	shared := 0
	for i := range rules {
		if rules[i].shared > 0 || reflect.TypeOf(rules[i].key).Kind() != reflect.Pointer {
			continue
		}
		if shared == maxShared {
			return
		}
		for j := i + 1; j < len(rules); j++ {
			if rules[j].key == rules[i].key {
				rules[i].shared, rules[j].shared = shared+1, shared+1
			}
		}
		shared = max(shared, rules[i].shared)
	}
}
