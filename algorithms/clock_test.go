package algorithms

import (
	"testing"
	"time"
)

// A clock that was a year ahead must not deny for a year, nor free anybody: what
// was used counts, as if it had been used now.
func TestAClockErrorOfAYearIsForgotten(t *testing.T) {
	for name, b := range map[string]backend{"memory": memoryBackend(t), "redis": realBackend(t)} {
		eachAlgorithm(t, func(t *testing.T, l Limit) {
			take := func(us, cost int64) Result {
				t.Helper()
				b.setTime(us)
				return mustTake(t, b.limiter, Check{Rule: "r", Key: "k", Limit: l, Cost: cost})[0]
			}
			b.flush()
			take(someTime+year, 2)
			if r := take(someTime, 1); !r.HasRoom || r.Remaining != 2 {
				t.Errorf("%s: two were used, and one now: %+v", name, r)
			}
			b.flush()
			take(someTime+year, 5)
			r := take(someTime, 1) // denied, and written all the same
			if r.HasRoom || r.RetryAfter > 2*l.Period {
				t.Errorf("%s: all was used: %+v", name, r)
			}
			retry := r.RetryAfter.Microseconds()
			if r := take(someTime+retry-1, 1); r.HasRoom || r.RetryAfter != time.Microsecond {
				t.Errorf("%s: before RetryAfter: %+v", name, r)
			}
			if r := take(someTime+retry, 1); !r.HasRoom {
				t.Errorf("%s: after RetryAfter: %+v", name, r)
			}
		})
	}
}

// A correction tells the script the windows around the process's clock. Where the key's
// window is beyond them, what was used is kept to its end all the same.
func TestACorrectionKeepsAWindowThatItIsNotTold(t *testing.T) {
	in := func(year int) int64 { return time.Date(year, 6, 1, 0, 0, 0, 0, time.UTC).UnixMicro() }
	check := Check{Rule: "r", Key: "k", Limit: Limit{Rate: 10, Calendar: "year@UTC"}}
	for name, b := range map[string]backend{"miniredis": miniBackend(t), "redis": realBackend(t)} {
		b.setTime(in(2026))
		charged := mustTake(t, b.limiter, check)
		b.setTime(in(2024))
		other := check
		other.Key = "other"
		mustTake(t, b.limiter, other) // the process learns that it is 2024
		b.setTime(in(2025))
		if err := settleAll(t.Context(), b.limiter, 5, charged...); err != nil {
			t.Fatal(err)
		}
		if until := time.UnixMicro(in(2025)).Add(b.ttl(keyOf("test", check))).UTC(); until.Year() < 2027 {
			t.Errorf("%s: five units of 2026 are kept until %v", name, until)
		}
	}
}

// One that steps back a little gives nobody extra room.
func TestAClockThatStepsBackGivesNoExtraRoom(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, l Limit) {
		b := memoryBackend(t)
		admitted := 0
		for i := range int64(1000) {
			b.setTime(someTime - someTime%60_000_000 + 500 - i%2*1000) // to and fro over the edge of a window
			if mustTake(t, b.limiter, Check{Rule: "r", Key: "k", Limit: l})[0].HasRoom {
				admitted++
			}
		}
		if admitted != 5 {
			t.Errorf("admitted %d, want 5", admitted)
		}
	})
}
