// Package rated lists algorithms for tests, so that a new one is in all of them.
package rated

import (
	"slices"

	"github.com/seed75154129/ratelimit/internal/step"
)

// Rows are the algorithms that limit a rate in a period of time. in_flight and
// calendar_window have tests of their own.
var Rows = slices.DeleteFunc(slices.Clone(step.Table), func(row step.Row) bool { return row.Held || row.Calendar })

// Without returns Rows without those that a test cannot have.
func Without(these func(row step.Row) bool) []step.Row {
	return slices.DeleteFunc(slices.Clone(Rows), these)
}
