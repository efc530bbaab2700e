package algorithms

import (
	"context"
	"testing"
	"time"
)

// A memory with a clock of its own decides, settles and forgets at that clock's
// times.
func TestMemoryAtOtherTimes(t *testing.T) {
	now := time.Date(2001, 2, 3, 4, 5, 0, 0, time.UTC)
	m := new(Memory)
	m.Now = func() time.Time { return now }
	check := Check{Rule: "r", Limit: Limit{Rate: 2, Period: time.Minute, Algorithm: FixedWindow}}
	take := func(want bool) Decision {
		t.Helper()
		d, err := m.Take(context.Background(), check)
		if err != nil || d.Allowed != want || !d.Results[0].At.Equal(now) {
			t.Fatalf("at %s: %+v, %v; want %t", now, d, err, want)
		}
		return d
	}
	take(true)
	d := take(true)
	now = now.Add(59 * time.Second)
	take(false)
	if err := Refund(context.Background(), m, d); err != nil {
		t.Fatal(err)
	}
	take(true)
	take(false)
	if got := m.ready().Stats(); got.Keys != 1 {
		t.Errorf("%+v", got)
	}
	now = now.Add(time.Second)
	take(true)
}
