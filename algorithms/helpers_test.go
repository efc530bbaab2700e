package algorithms

import (
	"testing"

	"github.com/seed75154129/ratelimit/internal/rated"
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

// asText are the algorithms whose state is a text in Redis.
var asText = rated.Without(func(row step.Row) bool { return row.Summary })

func namesOf(rows []step.Row) []Algorithm {
	names := make([]Algorithm, len(rows))
	for i := range rows {
		names[i] = Algorithm(rows[i].Name)
	}
	return names
}
