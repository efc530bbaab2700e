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
		{Limit: Limit{Rate: 7, Period: time.Second, Algorithm: 99}},
		{Limit: Limit{Rate: 7, Period: time.Second}, Look: true},
		{Limit: Limit{Rate: 7, Period: time.Second}, Sync: 51 * time.Millisecond},
		{Limit: Limit{Rate: 7, Period: time.Hour}, Sync: 19 * time.Millisecond},
		{Limit: Limit{Rate: 7, Period: time.Hour}, Sync: 1001 * time.Millisecond},
		{Limit: Limit{Rate: 7, Period: time.Hour, Algorithm: SlidingLog}, Sync: time.Second},
		{Limit: Limit{Rate: 7, Period: time.Hour, Burst: 7, Algorithm: LeakyBucket}, Sync: time.Second},
		{Limit: MaxInFlight(7), Sync: time.Second},
		{Limit: Limit{Rate: 7, Period: time.Hour}, Sync: time.Second, Provisional: true},
		{},
	} {
		var p step.Params
		if ok := c.numbers(&p); ok || c.Validate() == nil {
			t.Errorf("%+v is valid", c)
		}
	}
}
