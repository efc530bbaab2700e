package middleware

import (
	"fmt"
	"strings"

	"github.com/seed75154129/ratelimit/internal/view"
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
		where += ": " + strings.ReplaceAll(view.Snake(e.Field), "_", " ")
	}
	return fmt.Sprintf("middleware: %s: %v", where, e.Err)
}

// Unwrap returns Err.
func (e *RuleError) Unwrap() error { return e.Err }
