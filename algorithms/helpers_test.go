package algorithms

import (
	"slices"
	"testing"

	"github.com/seed75154129/ratelimit/internal/step"
)

// storeOf is a Redis as package failmode has it.
var storeOf = opened{}.Store

func peekOne(t *testing.T, m *Memory, check Check) Result {
	t.Helper()
	d, err := m.Peek(t.Context(), check)
	if err != nil {
		t.Fatal(err)
	}
	return d.Results[0]
}

// rated are the algorithms whose charges have a cost and a period. in_flight has tests of
// its own, and calendar_window is beside them in TestConformance.
var rated = slices.DeleteFunc(slices.Clone(step.Table), func(row step.Row) bool { return row.Held || row.Calendar })
