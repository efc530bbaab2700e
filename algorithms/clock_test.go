package algorithms

import (
	"strings"
	"testing"
	"time"
)

// ticking is a Memory on a clock that a test sets.
func ticking() (m *Memory, setTime func(us int64)) {
	var now int64
	return &Memory{Now: func() time.Time { return time.UnixMicro(now) }}, func(us int64) { now = us }
}

// A clock that was a year ahead must not deny for a year, nor free anybody: what
// was used counts, as if it had been used now.
func TestAClockErrorOfAYearIsForgotten(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, l Limit) {
		m, setTime := ticking()
		take := func(key string, us, cost int64) Result {
			t.Helper()
			setTime(us)
			return mustTake(t, m, Check{Rule: "r", Key: key, Limit: l, Cost: cost})[0]
		}
		take("some", someTime+year, 2)
		if r := take("some", someTime, 1); !r.HasRoom || r.Remaining != 2 {
			t.Errorf("two were used, and one now: %+v", r)
		}
		take("all", someTime+year, 5)
		r := take("all", someTime, 1) // denied, and written all the same
		if r.HasRoom || r.RetryAfter > 2*l.Period {
			t.Errorf("all was used: %+v", r)
		}
		retry := r.RetryAfter.Microseconds()
		if r := take("all", someTime+retry-1, 1); r.HasRoom || r.RetryAfter != time.Microsecond {
			t.Errorf("before RetryAfter: %+v", r)
		}
		if r := take("all", someTime+retry, 1); !r.HasRoom {
			t.Errorf("after RetryAfter: %+v", r)
		}
	})
}

// A server whose clock is in none of the windows around this process's time decides nothing
// by a calendar. The error says which clock is where, and charges nothing.
func TestAServerAtAnotherTimeDecidesByNoCalendar(t *testing.T) {
	for name, b := range map[string]Backend{"miniredis": MiniBackend(t), "redis": RealBackend(t), "cluster": ClusterBackend(t)} {
		b.SetTime(someTime)
		daily, hourly := Check{Rule: "daily", Key: "k", Limit: PerDay(10, "UTC")}, Check{Rule: "hourly", Key: "k", Limit: PerHour(10)}
		charged := mustTake(t, b.Redis, daily, hourly)
		for _, days := range []int{-2, -1, 0, 1, 2} {
			b.now = func() time.Time { return time.UnixMicro(someTime).AddDate(0, 0, days) }
			d, err := b.Peek(t.Context(), daily, hourly)
			_, failed := b.Settle(t.Context(), Charge{Result: charged[0], Cost: 2 + int64(days)%2})
			if err == nil {
				err = errOf(d)
			}
			if max(days, -days) < 2 {
				if err != nil || failed != nil {
					t.Errorf("%s, %d days ahead: %v, %v", name, days, err, failed)
				}
				continue
			}
			for _, err := range []error{err, failed} {
				if err == nil || !strings.Contains(err.Error(), "the server's clock, at 2026-11-18") {
					t.Errorf("%s, %d days ahead: %v", name, days, err)
				}
			}
		}
	}
}

// One that steps back a little gives nobody extra room.
func TestAClockThatStepsBackGivesNoExtraRoom(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, l Limit) {
		m, setTime := ticking()
		admitted := 0
		for i := range int64(1000) {
			setTime(someTime - someTime%60_000_000 + 500 - i%2*1000) // to and fro over the edge of a window
			if mustTake(t, m, Check{Rule: "r", Key: "k", Limit: l})[0].HasRoom {
				admitted++
			}
		}
		if admitted != 5 {
			t.Errorf("admitted %d, want 5", admitted)
		}
	})
}
