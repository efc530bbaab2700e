package failmode

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// A flood of keys that are asked for once or twice, for however many units, takes no
// lease from keys that are in use, and leaves room for one that gets hot meanwhile.
func TestAFloodOfKeysTakesNoLeaseInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ls := new(leases)
		ls.begin()
		ask := func(key string, cost int64) (l *lease) {
			c := leased(1_000_000, time.Hour, algorithms.FixedWindow)
			c.Key, c.Cost = key, cost
			now := time.Now()
			l, _ = ls.findOrMake(&c, now)
			l.spend(&c, now, 1, new(algorithms.Result))
			return l
		}
		const milliseconds, warm = 60, 10
		for _, begin := range []int{0, milliseconds / 2} {
			had := [50]*lease{}
			for ms := range milliseconds {
				for i := range 4 * leaseShards {
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
			if n := len(ls.shards[i].keys); n > leaseInShard {
				t.Errorf("%d leases in a shard", n)
			}
		}
	})
}

func BenchmarkAFloodOfLeasedKeys(b *testing.B) {
	ls := new(leases)
	ls.begin()
	checks := make([]algorithms.Check, 100_000)
	for i := range checks {
		checks[i] = leased(1_000_000, time.Hour, algorithms.FixedWindow)
		checks[i].Key = fmt.Sprint(i)
	}
	i := 0
	for b.Loop() {
		_, _ = ls.findOrMake(&checks[i%len(checks)], time.Now())
		i++
	}
}
