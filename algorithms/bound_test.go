package algorithms

import (
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/internal/step"
)

// The fast path refuses what Validate refuses.
func TestInvalidChecksHaveNoNumbers(t *testing.T) {
	for _, c := range []Check{
		{Limit: Limit{Rate: 7, Period: time.Second}, Cost: -1},
		{Limit: Limit{Rate: 7, Period: time.Second}, MaxDelay: -1},
		{Limit: Limit{Rate: 0, Period: time.Second}},
		{Limit: Limit{Rate: 7, Period: time.Second, Algorithm: "fixed_windou"}},
		{Limit: Limit{Rate: 7, Period: time.Second}, Look: true},
		{Limit: Limit{Rate: 7, Period: time.Second, Burst: 7}, Lease: true},
		{},
	} {
		var p step.Params
		if ok := c.numbers(&p); ok || c.Validate() == nil {
			t.Errorf("%+v is valid", c)
		}
	}
}
