package algorithms

import "testing"

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
