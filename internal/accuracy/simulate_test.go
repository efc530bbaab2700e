package accuracy

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// simulate sends the requests to each limit, in fake time, and returns the
// outcomes by limit and request.
func simulate(t *testing.T, requests []request, limits ...algorithms.Limit) [][]outcome {
	t.Helper()
	outcomes := make([][]outcome, len(limits))
	checks := make([]algorithms.Check, len(limits))
	for i, limit := range limits {
		outcomes[i] = make([]outcome, len(requests))
		checks[i] = algorithms.Check{Rule: limit.String(), Limit: limit}
	}
	synctest.Test(t, func(t *testing.T) {
		memory := new(algorithms.Memory)
		start := time.Now()
		if !start.Equal(start.Truncate(period)) {
			t.Fatalf("fake time begins at %s, not at an edge of a window", start)
		}
		for r, q := range requests {
			time.Sleep(time.Until(start.Add(q.at)))
			for i := range checks {
				checks[i].Key, checks[i].Cost = strconv.Itoa(q.client), q.cost
				d, err := memory.Take(context.Background(), checks[i])
				if err != nil {
					t.Fatal(err)
				}
				outcomes[i][r] = outcome{d.Allowed, q.at + d.Delay(), d.Results[0].Remaining}
			}
		}
	})
	return outcomes
}
