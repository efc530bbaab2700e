package middleware

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// A Rule is one limit on the requests that it matches. Only Name, Key and Limit
// are required. All fields but Key, LimitFor and CostFor are plain data, as in a
// rule file. Where data and a function are both set, what the function returns
// wins, unless it is zero.
type Rule struct {
	// Name is in headers, metrics, logs and Redis keys; unique. Letters, digits,
	// '-', '_' and '.', at most 64.
	Name string

	// Match lists ServeMux patterns that share one count, such as
	// "POST /auth/login" or "/files/{path...}"; nil matches every request.
	// Patterns with a host are refused. The path is cleaned and a trailing slash
	// ignored, so that no other spelling of a path escapes its rule.
	Match []string

	// Key says who is limited; [keyfunc.Everyone] limits all together. Requests
	// for which it returns [keyfunc.ErrNoKey] share one count; for
	// [keyfunc.ErrSkip] the rule does not apply; any other error refuses the
	// request, a [*keyfunc.StatusError] with its status. New and SetRules call
	// its method Validate, if it has one.
	Key keyfunc.Key

	// Limit is how much each key may use.
	Limit algorithms.Limit
	// Tiers replaces Limit for the tier that Config.TierFor names; [Unlimited]
	// exempts a tier. An unknown tier has Limit, and is counted in a metric.
	Tiers map[string]algorithms.Limit
	// LimitFor returns a request's limit; the zero Limit means what Tiers and
	// Limit say, and so, with a line in the log, does an invalid one.
	LimitFor func(*http.Request) algorithms.Limit

	// Cost is how many units a request takes; 0 means 1. At most what the limit
	// can hold.
	Cost int64
	// Costs replaces Cost for requests that match a pattern, the most specific
	// first, in the same count. Patterns are matched as those of Match; costs are
	// at least 1, and at most what the limit and each tier can hold.
	Costs map[string]int64
	// CostFor returns a request's cost; 0 means what Costs and Cost say. Where it
	// is known only afterwards, the handler calls Settle.
	CostFor func(*http.Request) int64
	// ChargeOn lists the response statuses that stay charged, such as 401; others
	// give back. nil means all. Window algorithms only; no response, a panic or
	// a hijack stays charged. A Settle by the handler takes precedence.
	ChargeOn []int

	// Ban denies a key for longer after repeated denials; zero means no ban.
	Ban algorithms.Ban

	// Fail says what to do when the store cannot count; zero is [failmode.Local].
	Fail failmode.Mode

	// Hidden keeps the rule out of response headers and problem documents, where
	// its counts would tell what others do: whether an account is in use. Its
	// denials have a Retry-After and no name. The decision that [FromContext],
	// Observe and Take return has it, so do not show that to clients.
	Hidden bool

	// Shadow is the fraction of keys, chosen by hash, for which the rule is
	// decided, counted and reported but not enforced: 0 none, 1 all.
	Shadow float64
	// Disabled turns the rule off. Its counts expire as they would.
	Disabled bool
	// Lease takes units in blocks, for hot keys. Fixed and sliding windows only;
	// not with ChargeOn or Ban.
	Lease bool
}

// Unlimited, in Rule.Tiers or from Rule.LimitFor, exempts a request from the rule.
var Unlimited = algorithms.Limit{Rate: -1}

// A rule is a Rule made ready for requests.
type rule struct {
	source    Rule      // a copy of it
	patterns  []pattern // none matches every request
	key       keyfunc.Key
	readsBody bool // of the key
	hidden    bool
	queue     bool
	byRoute   bool             // its key is a route, or has one
	check     algorithms.Check // without the key
}

func (r *rule) matches(t *target) bool {
	for i := range r.patterns {
		if r.patterns[i].match(t) {
			return true
		}
	}
	return len(r.patterns) == 0
}

// compile validates rules and makes them ready.
func compile(rules []Rule) ([]rule, error) {
	if err := ValidateRules(rules); err != nil {
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
		if named, ok := r.Key.(fmt.Stringer); ok {
			c.byRoute = strings.Contains(named.String(), "route")
		}
		c.hidden, c.queue = r.Hidden, lent.IsQueue(r.Limit)
		c.check = algorithms.Check{Rule: r.Name, Limit: r.Limit, Cost: max(r.Cost, 1), Fail: r.Fail}
	}
	return compiled, nil
}
