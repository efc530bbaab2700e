package algorithms

import (
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/internal/rated"
	"github.com/seed75154129/ratelimit/internal/step"
)

// Numbers that are computed once are those of the check that asks, whoever asked
// before in the same place, and nobody changes what others get.
func TestNumbersAreThoseOfTheCheck(t *testing.T) {
	var checks []Check
	for _, a := range append(namesOf(rated.Rows), "") {
		for _, rate := range []int64{1, 7, 100} {
			for _, period := range []time.Duration{time.Second, time.Minute, 3 * time.Microsecond} {
				for burst := range int64(3) {
					for cost := range int64(4) {
						for _, wait := range []time.Duration{0, time.Microsecond, time.Second} {
							c := Check{Rule: "r", Limit: Limit{Rate: rate, Period: period, Burst: burst, Algorithm: a}, Cost: cost, MaxDelay: wait}
							if c.Validate() == nil {
								checks = append(checks, c)
							}
						}
					}
				}
			}
		}
	}
	if len(checks) < 2*len(step.Bounds) {
		t.Fatalf("only %d checks: they need not share places", len(checks))
	}
	for range 2 {
		for _, c := range checks {
			var got step.Params
			ok := c.numbers(&got)
			want := paramsOf(&c, c.Limit.row())
			args := got.Arguments(nil)
			for i, arg := range want.Step.Arguments(nil, want) {
				if args[i] != arg {
					t.Fatalf("%+v: argument %d is %v, want %v", c, i, args[i], arg)
				}
			}
			if got.Bound = nil; !ok || got != want {
				t.Fatalf("%+v: %+v, %v; want %+v", c, got, ok, want)
			}
			got.SetCost(3)
		}
	}
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
