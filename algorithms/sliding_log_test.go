package algorithms

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

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
	b := realBackend(t)
	client := b.limiter.(*Redis).Client.(*redis.Client)
	check := Check{Rule: "r", Key: "k", Limit: Limit{Rate: step.MaxLog, Period: time.Minute, Algorithm: SlidingLog}}
	var charged []Result
	take := func(us, cost int64) Result {
		t.Helper()
		b.setTime(us)
		check := check
		check.Cost = cost
		d, err := b.limiter.Take(t.Context(), check)
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
			if err := settleAll(t.Context(), b.limiter, 0, r); err != nil {
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

// A charge that many have come after stays, since giving it back would take long.
func TestALongLogGivesBackToItsLatestEntries(t *testing.T) {
	b := realBackend(t)
	check := Check{Rule: "r", Key: "k", Limit: Limit{Rate: step.MaxLog, Period: time.Minute, Algorithm: SlidingLog}}
	var m Memory
	var inRedis, inGo []Result
	for i := range int64(step.MaxRewritten + 10) {
		b.setTime(someTime + i)
		d, err := b.limiter.Take(t.Context(), check)
		if err != nil {
			t.Fatal(err)
		}
		inRedis = append(inRedis, alone(d.Results[0]))
		inGo = append(inGo, modelAt(&m, someTime+i, true, []Check{check}).Results[0])
	}
	left := inGo[len(inGo)-1].Remaining
	for _, c := range []struct {
		entry int
		back  int64
	}{{9, 0}, {10, 1}, {9, 1}, {11, 1}, {6, 0}, {7, 1}} { // without later ones, earlier ones are late enough
		got, err := b.limiter.Settle(t.Context(), chargesOf(0, inRedis[c.entry])...)
		if err != nil {
			t.Fatal(err)
		}
		want := settleModelAt(&m, someTime+step.MaxRewritten+9, 0, inGo[c.entry:c.entry+1])
		if left += c.back; got[0].Remaining != left || want[0].Remaining != left {
			t.Errorf("entry %d: %d left in Redis, %d in Go, want %d", c.entry, got[0].Remaining, want[0].Remaining, left)
		}
	}
}

// A charge is corrected behind entries that have left the log and are still stored.
func TestALogIsCorrectedBehindWhatHasLeft(t *testing.T) {
	check := Check{Rule: "r", Key: "k", Limit: Limit{Rate: 100, Period: 10 * time.Second, Algorithm: SlidingLog}}
	for name, b := range map[string]backend{"memory": memoryBackend(t), "miniredis": miniBackend(t), "redis": realBackend(t)} {
		left := func(want int64) {
			t.Helper()
			if d, err := b.limiter.Peek(t.Context(), check); err != nil || d.Results[0].Remaining != want {
				t.Errorf("%s: %+v, %v; want %d left", name, d, err, want)
			}
		}
		var last Result
		for second := range int64(6) { // 1 to 6 units, at 0 to 5 s
			b.setTime(someTime + second*1_000_000)
			c := check
			c.Cost = second + 1
			last = mustTake(t, b.limiter, c)[0]
		}
		b.setTime(someTime + 13_500_000) // the first four have left
		left(100 - 5 - 6)
		for _, cost := range []int64{2, 0} {
			settled, err := b.limiter.Settle(t.Context(), Charge{Result: last, Cost: cost})
			if err != nil || settled[0].Charged != cost {
				t.Fatalf("%s: %+v, %v", name, settled, err)
			}
			last = settled[0]
			left(100 - 5 - cost)
		}
		mustTake(t, b.limiter, check)
		left(100 - 5 - 1)
		b.setTime(someTime + 14_000_001)
		left(100 - 1)
	}
}
