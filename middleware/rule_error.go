package middleware

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/seed75154129/ratelimit/keyfunc"
)

// A RuleError is a mistake in one field of one rule.
type RuleError struct {
	Index       int    // of the rule; -1 where there are no rules
	Rule, Field string // its name; the field as in Go
	Err         error  // what is wrong, and what to write
}

// Error names the rule and the field.
func (e *RuleError) Error() string {
	where := fmt.Sprintf("rule %q", e.Rule)
	switch {
	case e.Index < 0:
		where = "rules"
	case e.Rule == "":
		where = fmt.Sprintf("rules[%d]", e.Index)
	}
	if e.Field != "" {
		where += ": " + words(e.Field)
	}
	return fmt.Sprintf("middleware: %s: %v", where, e.Err)
}

// Unwrap returns Err.
func (e *RuleError) Unwrap() error { return e.Err }

// words spells a field as words: "charge on" for "ChargeOn".
func words(field string) string {
	var b strings.Builder
	for i, c := range field {
		if unicode.IsUpper(c) && i > 0 {
			b.WriteByte(' ')
		}
		b.WriteRune(unicode.ToLower(c))
	}
	return b.String()
}

// maxRules is how many rules there may be: a request is compared with each.
const maxRules = 1000

// ValidateRules reports every mistake, each a [*RuleError], joined.
func ValidateRules(rules []Rule) error {
	if len(rules) == 0 {
		return &RuleError{Index: -1, Err: errors.New("at least one is required")}
	}
	if len(rules) > maxRules {
		return &RuleError{Index: maxRules, Rule: rules[maxRules].Name, Err: fmt.Errorf("%d rules; at most %d", len(rules), maxRules)}
	}
	var errs []error
	named := make(map[string]int, len(rules))
	for i := range rules {
		r := &rules[i]
		bad := func(field string, err error) {
			for _, err := range each(err) {
				errs = append(errs, &RuleError{i, r.Name, field, err})
			}
		}
		bad("Name", validateName(r.Name))
		if first, taken := named[r.Name]; taken && r.Name != "" {
			bad("Name", fmt.Errorf("rules[%d] and rules[%d] have the same; counts would be shared", first, i))
		} else {
			named[r.Name] = i
		}
		match := r.validateMatch(bad)
		bad("Key", validateKey(r.Key))
		bad("Limit", cmp.Or(r.Limit.Validate(), periodTooShort(r.Limit)))
		r.validateData(match, bad)
		_, err := r.Fail.MarshalText()
		bad("Fail", err)
	}
	return errors.Join(errs...)
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

func validateKey(key keyfunc.Key) error {
	if f, ok := key.(keyfunc.Func); key == nil || ok && f == nil {
		return errors.New("required; use keyfunc.IP to limit each address, keyfunc.Everyone to limit all together")
	}
	if v, ok := key.(interface{ Validate() error }); ok {
		return v.Validate()
	}
	return nil
}

// each returns the errors that [errors.Join] joined, at any depth; none if err
// is nil.
func each(err error) (all []error) {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || !strings.Contains(err.Error(), "\n") { // made by fmt.Errorf with several %w
		return []error{err}
	}
	for _, err := range joined.Unwrap() {
		all = append(all, each(err)...)
	}
	return all
}
