package lease

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

func hourly(key string) algorithms.Check {
	return algorithms.Check{Rule: "hot", Key: key, Lease: true, Limit: algorithms.Limit{Rate: 1_000_000, Period: time.Hour, Algorithm: algorithms.FixedWindow}}
}

// A flood of keys that are asked for once or twice, for however many units, takes no
// lease from keys that are in use, and leaves room for one that gets hot meanwhile.
func TestAFloodOfKeysTakesNoLeaseInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ls := new(Table)
		ls.Start()
		ask := func(key string, cost int64) (l *Lease) {
			c := hourly(key)
			c.Cost = cost
			now := time.Now()
			l, _ = ls.FindOrMake(&c, now)
			l.Spend(&c, now, 1, new(algorithms.Result))
			return l
		}
		const milliseconds, warm = 60, 10
		for _, begin := range []int{0, milliseconds / 2} {
			had := [50]*Lease{}
			for ms := range milliseconds {
				for i := range 4 * shardCount {
					for range 1 + i%2 {
						ask(fmt.Sprint(begin, ms, "-", i), 1000)
					}
				}
				for i := range had {
					if ms < begin {
						break
					}
					l := ask(fmt.Sprint(begin, "hot-", i), 1)
					if ms > begin+warm && l != had[i] {
						t.Fatalf("key %d lost its lease after %d ms", i, ms)
					}
					had[i] = l
				}
				time.Sleep(time.Millisecond)
			}
		}
		for i := range ls.shards {
			if n := len(ls.shards[i].keys); n > shardSize {
				t.Errorf("%d leases in a shard", n)
			}
		}
	})
}

// A block is spent from when it was asked for, by both clocks of this process.
func TestABlockAndTheClocks(t *testing.T) {
	c, sent := hourly("k"), time.Now()
	var ls Table
	ls.Start()
	l, _ := ls.FindOrMake(&c, sent)
	block := algorithms.Result{Check: c, HasRoom: true, Charged: 100, At: time.Now().Truncate(time.Microsecond)}
	block.Trace.Charge.At = block.At.UnixMicro()
	if left := l.Refilled(&block, sent); left.Result.Charged != 0 || l.Left(sent) != 100 {
		t.Fatalf("%+v; %d left", left, l.Left(sent))
	}
	block.Charged = 50
	if left := l.Refilled(&block, sent); left.Result.Charged != 0 || l.Left(sent) != 150 {
		t.Errorf("a block of the same window: %+v; %d left", left, l.Left(sent))
	}
	block.Trace.Charge.At += c.Limit.Period.Microseconds()
	if left := l.Refilled(&block, sent); left.Result.Charged != 150 || l.Left(sent) != 50 {
		t.Errorf("a block of the next window, before the timer of the last: %+v; %d left", left, l.Left(sent))
	}
	var r algorithms.Result
	if spent, _, _ := l.Spend(&c, sent.Add(-time.Second), 1, &r); !spent || r.At.Before(block.At) {
		t.Errorf("spent before it was granted: %+v", r)
	}
	ended := func(what string, now time.Time) {
		t.Helper()
		if spent, _, _ := l.Spend(&c, now, 1, &r); spent || l.units == 0 || l.Left(now) != 0 {
			t.Errorf("%s: %v, %d left", what, spent, l.Left(now))
		}
	}
	// A process that is stopped (SIGSTOP) goes on before its timers do.
	ended("stopped for its life", sent.Add(maxLife))
	_ = l.Refilled(&block, sent.Add(-maxLife))
	ended("stopped while the answer was on its way", sent)
	_ = l.Refilled(&block, sent)
	l.sent = l.sent.Round(0).Add(-maxLife)
	ended("a night's sleep, which a monotonic clock does not notice", sent)
}

func BenchmarkAFloodOfLeasedKeys(b *testing.B) {
	ls := new(Table)
	ls.Start()
	checks := make([]algorithms.Check, 100_000)
	for i := range checks {
		checks[i] = hourly(fmt.Sprint(i))
	}
	i := 0
	for b.Loop() {
		_, _ = ls.FindOrMake(&checks[i%len(checks)], time.Now())
		i++
	}
}
