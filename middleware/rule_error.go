package middleware

import (
	"fmt"
	"strings"
	"unicode"
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
