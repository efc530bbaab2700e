package algorithms

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/internal/redistest"
	"github.com/seed75154129/ratelimit/internal/step"
)

// A log must not grow by what is given back, as where only failures count.
func TestALogHoldsOnlyWhatCounts(t *testing.T) {
	client := redistest.Start(t).Client(t)
	r := &Redis{Client: client, Namespace: "test", Budget: roomy}
	m := new(Memory)
	check := Check{Rule: "r", Key: "k", Limit: Limit{Rate: 10, Period: time.Hour, Algorithm: SlidingLog}}
	for name, c := range map[string]Limiter{"redis": r, "memory": m} {
		var last []Result
		for range 200 { // each is given back once the next has come
			d, err := c.Take(t.Context(), check)
			if err != nil || !d.Allowed {
				t.Fatal(name, d, err)
			}
			if err := settleAll(t.Context(), c, 0, last...); err != nil {
				t.Fatal(err)
			}
			last = d.Results
		}
	}
	if n := client.LLen(t.Context(), keyOf("test", check)).Val(); n > 4 {
		t.Errorf("%d elements in Redis", n)
	}
}

// Whatever is asked of a log of ten thousand, Redis does not do much for it. It
// took a command for each entry once: 70 ms, in which nobody else was served.
func TestALongLogTakesFewCommands(t *testing.T) {
	b := RealBackend(t)
	client := b.Client
	check := Check{Rule: "r", Key: "k", Limit: Limit{Rate: step.MaxLog, Period: time.Minute, Algorithm: SlidingLog}}
	var charged []Result
	take := func(us, cost int64) Result {
		t.Helper()
		b.SetTime(us)
		check := check
		check.Cost = cost
		d, err := b.Redis.Take(t.Context(), check)
		if err != nil {
			t.Fatal(err)
		}
		return d.Results[0]
	}
	for i := range int64(step.MaxLog) {
		charged = append(charged, take(someTime+i, 1))
	}
	commands := func(what string, most int64, do func()) {
		t.Helper()
		if err := client.ConfigResetStat(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		do()
		info, err := client.Info(t.Context(), "commandstats").Result()
		if err != nil {
			t.Fatal(err)
		}
		calls := int64(0)
		for line := range strings.Lines(info) {
			var n int64
			if _, rest, ok := strings.Cut(line, "calls="); ok {
				if _, err := fmt.Sscan(strings.SplitN(rest, ",", 2)[0], &n); err != nil {
					t.Fatal(err)
				}
			}
			calls += n
		}
		if calls > most {
			t.Errorf("%s: %d commands, want at most %d", what, calls, most)
		}
	}
	settle := func(r Result) func() {
		return func() {
			if err := settleAll(t.Context(), b.Redis, 0, r); err != nil {
				t.Fatal(err)
			}
		}
	}
	const search = 2 * 14 // LINDEX, of 10,000
	now := someTime + step.MaxLog
	commands("the usual denial", 6, func() { take(now, 1) })
	for _, cost := range []int64{2, step.MaxLog / 3, step.MaxLog} {
		commands("a large denial", 8+search, func() { take(now, cost) })
	}
	for _, i := range []int{step.MaxLog - 1, step.MaxLog - 900, step.MaxLog / 2, 0} {
		commands("a give-back", 12+search, settle(charged[i]))
	}
	for _, left := range []int64{1, 100, step.MaxLog / 2, step.MaxLog - 2} {
		commands("what has left", 12+search, func() { take(someTime+60_000_000+left, 1) })
	}
	commands("all have left", 12+search, func() { take(someTime+180_000_000, 1) })
}
