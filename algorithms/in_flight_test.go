package algorithms

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/internal/redistest"
)

// A Memory holds exactly, without leases, in room beside that of other keys, which take
// it neither from it nor from them; and nothing where nothing runs.
func TestMemoryHoldsWhatIsInFlight(t *testing.T) {
	now := time.UnixMicro(someTime)
	m := &Memory{MaxKeys: 64, Now: func() time.Time { return now }}
	check := func(i int) Check { return Check{Rule: "r", Key: fmt.Sprint(i), Limit: MaxInFlight(2)} }
	take := func(i int) Decision {
		d, err := m.Take(t.Context(), check(i))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	held := []Decision{take(1), take(1), take(2)}
	for i := range 10_000 { // a flood of other keys, with a rate
		if _, err := m.Take(t.Context(), Check{Rule: "r", Key: fmt.Sprint("flood", i), Limit: PerHour(1)}); err != nil {
			t.Fatal(err)
		}
	}
	now = now.Add(365 * 24 * time.Hour) // no lease ends
	for i := range 10_000 {
		d := take(3 + i)
		if !d.Allowed {
			t.Fatalf("key %d is denied: %+v", 3+i, d.Results[0])
		}
		if err := Refund(t.Context(), m, d); err != nil {
			t.Fatal(err)
		}
	}
	if d := take(1); d.Allowed || d.Results[0].RetryAfter != time.Second || d.Results[0].ResetAfter != 0 {
		t.Errorf("%+v; want a denial for a second", d.Results[0])
	}
	if err := m.Reset(t.Context(), check(1)); err != nil {
		t.Fatal(err)
	}
	if d := take(1); d.Allowed {
		t.Error("a Reset frees what runs")
	}
	for _, d := range held[1:] {
		if err := Refund(t.Context(), m, d); err != nil {
			t.Fatal(err)
		}
	}
	if left := peekOne(t, m, check(1)).Remaining; left != 1 {
		t.Errorf("%d left, want 1", left)
	}
	if left := peekOne(t, m, check(2)).Remaining; left != 2 {
		t.Errorf("%d left, want 2", left)
	}
}

// Leases on a real server, by its clock: they lapse, and members of a clock that was
// ahead are put right by a denial.
func TestLeasesOfRequestsInFlight(t *testing.T) {
	t.Parallel()
	srv, clock := redistest.StartWithClock(t)
	client := srv.Client(t)
	r := &Redis{Client: client, Namespace: "shop", Budget: roomy}
	check := Check{Rule: "r", Key: "k", Limit: MaxInFlight(2)}
	take := func() bool {
		d, err := r.Take(t.Context(), check)
		if err != nil {
			t.Fatal(err)
		}
		return d.Allowed
	}
	clock.Set(time.UnixMicro(someTime))
	if first, second, third := take(), take(), take(); !first || !second || third {
		t.Fatal("want two admitted and the third denied")
	}
	if d, err := r.Peek(t.Context(), check); err != nil || d.Allowed || d.Results[0].Remaining != 0 {
		t.Errorf("%+v, %v", d, err)
	}
	clock.Advance(defaultLease - time.Microsecond)
	if take() {
		t.Error("admitted before the end of the leases")
	}
	clock.Advance(time.Microsecond)
	if !take() {
		t.Error("denied after the end of the leases")
	}
	for _, ahead := range []time.Duration{time.Hour, 365 * 24 * time.Hour} {
		client.FlushAll(t.Context())
		clock.Set(time.UnixMicro(someTime).Add(ahead))
		if first, second := take(), take(); !first || !second {
			t.Fatal("denied")
		}
		clock.Set(time.UnixMicro(someTime))
		if take() {
			t.Error("two are there, whenever they came")
		}
		clock.Advance(defaultLease)
		if !take() {
			t.Errorf("members of a clock that was %s ahead are there a lease after a denial", ahead)
		}
	}
}
