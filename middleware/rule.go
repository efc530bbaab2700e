package middleware

import (
	"errors"
	"fmt"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// A Rule is one limit, on the requests that it matches.
type Rule struct {
	// Name is in headers, metrics, logs and Redis keys; required, unique among
	// the rules. Letters, digits, '-', '_' and '.', at most 64.
	Name string

	// Match lists net/http ServeMux patterns that share one count, such as
	// "POST /auth/login" or "/files/{path...}"; nil matches every request.
	// Patterns with a host are refused. The path is cleaned and a trailing slash
	// ignored, so that no other spelling of a path escapes its rule.
	Match []string

	// Key says who is limited; required. [keyfunc.Everyone] limits all together.
	// Requests for which it returns [keyfunc.ErrNoKey] share one count; for
	// [keyfunc.ErrSkip] the rule does not apply; a [keyfunc.StatusError] answers
	// the request with its status; any other error refuses the request. New and
	// SetRules call its Validate method, if it has one.
	Key keyfunc.Key

	// Limit is how much each key may use; required.
	Limit algorithms.Limit

	// Cost is how many units a request takes; 0 means 1. At most what the limit
	// can hold.
	Cost int64

	// Fail says what to do when nobody can count; the zero value is
	// [failmode.Local].
	Fail failmode.Mode
}

// A rule is a Rule made ready for requests.
type rule struct {
	patterns  []pattern // none matches every request
	key       keyfunc.Key
	readsBody bool             // of the key
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

// compile validates the rules and reports every mistake at once.
func compile(rules []Rule) ([]rule, error) {
	var errs []error
	if len(rules) == 0 {
		errs = append(errs, errors.New("middleware: rules: at least one is required"))
	}
	compiled := make([]rule, len(rules))
	named := make(map[string]int, len(rules))
	for i := range rules {
		where := fmt.Sprintf("rule %q", rules[i].Name)
		if rules[i].Name == "" {
			where = fmt.Sprintf("rule %d", i+1)
		}
		bad := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("middleware: %s: %w", where, fmt.Errorf(format, args...)))
		}
		if err := validateName(rules[i].Name); err != nil {
			bad("name: %w", err)
		} else if first, taken := named[rules[i].Name]; taken {
			bad("name: rules %d and %d have the same; counts would be shared", first+1, i+1)
		} else {
			named[rules[i].Name] = i
		}
		var err error
		if compiled[i], err = compileRule(&rules[i], where, bad); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return compiled, nil
}

func compileRule(r *Rule, where string, bad func(string, ...any)) (rule, error) {
	patterns, err := compilePatterns(where+": match", r.Match)
	for _, err := range each(validateKey(r.Key)) {
		bad("key: %w", err)
	}
	reader, ok := r.Key.(interface{ ReadsBody() bool })
	readsBody := ok && reader.ReadsBody()
	if err := r.Limit.Validate(); err != nil {
		for _, err := range each(err) {
			bad("limit: %w", err)
		}
	} else if r.Cost > r.Limit.Quota() {
		bad("cost: %d is above the %d units that the limit %s can hold: no request would pass", r.Cost, r.Limit.Quota(), r.Limit)
	}
	if r.Cost < 0 {
		bad("cost: must not be negative, got %d", r.Cost)
	}
	if _, err := r.Fail.MarshalText(); err != nil {
		bad("fail: %w", err)
	}
	return rule{
		patterns:  patterns,
		key:       r.Key,
		readsBody: readsBody,
		check:     algorithms.Check{Rule: r.Name, Limit: r.Limit, Cost: max(r.Cost, 1), Fail: r.Fail},
	}, err
}

func validateKey(key keyfunc.Key) error {
	if f, ok := key.(keyfunc.Func); key == nil || ok && f == nil {
		return errors.New("required; use keyfunc.IP to limit each address, keyfunc.Everyone to limit all together")
	}
	if v, ok := key.(interface{ Validate() error }); ok {
		return v.Validate()
	}
	return nil
}

func compilePatterns(where string, texts []string) ([]pattern, error) {
	var errs []error
	patterns := make([]pattern, len(texts))
	for i, text := range texts {
		var err error
		if patterns[i], err = parsePattern(text); err != nil {
			errs = append(errs, fmt.Errorf("middleware: %s: %w", where, err))
		}
	}
	return patterns, errors.Join(errs...)
}

func validateName(name string) error {
	if name == "" {
		return errors.New("required")
	}
	if len(name) > 64 {
		return fmt.Errorf("%d bytes; at most 64", len(name))
	}
	for _, c := range name {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return fmt.Errorf("%q in %q; use letters, digits, '-', '_' and '.'", c, name)
		}
	}
	return nil
}

// each returns the errors that were joined, at any depth; none if err is nil.
func each(err error) (all []error) {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	for _, err := range joined.Unwrap() {
		all = append(all, each(err)...)
	}
	return all
}
