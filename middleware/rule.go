package middleware

import (
	"fmt"
	"strings"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// A Rule is one limit on the requests that it matches. Only Name, Key and Limit
// are required.
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
	// method Validate, if it has one.
	Key keyfunc.Key

	// Limit is how much each key may use.
	Limit algorithms.Limit

	// Cost is how many units a request takes; 0 means 1. It must not be above the
	// limit's Quota.
	Cost int64

	// Fail says what to do while the store cannot count; zero is [failmode.Local].
	Fail failmode.Mode

	// Hidden keeps the rule out of response headers and problem documents. Use it
	// if its counts would reveal what others do, such as whether an account is in
	// use. Its denials have a Retry-After but no name. The decisions of
	// [FromContext], Observe and Take include it: do not show those to clients.
	Hidden bool
}

// A rule is a Rule made ready for requests.
type rule struct {
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
