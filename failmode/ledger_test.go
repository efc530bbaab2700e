package failmode

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
)

// Whatever fails on whichever server, and however requests overlap, the store
// holds in the end what admitted requests were charged there: nothing of a request
// that was denied stays, and nothing is given back twice.
func TestStoreHoldsWhatWasAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := new(nodes)
		g := join(n, 1)
		checks := func() (cs []algorithms.Check) {
			cost := []int64{1, 3}[rand.IntN(2)]
			for shard := 1; shard <= 3; shard++ {
				if rand.IntN(4) > 0 {
					cs = append(cs, algorithms.Check{
						Rule: "r", Key: fmt.Sprint(shard), Cost: cost, Fail: Mode(rand.IntN(3)), Shadow: rand.IntN(5) == 0,
						Limit: algorithms.Limit{Rate: 301, Period: 24 * time.Hour, Algorithm: algorithms.FixedWindow},
					})
				}
			}
			return cs
		}
		var charged [4]atomic.Int64
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 500 {
					if rand.IntN(10) == 0 {
						n.set(1+rand.IntN(3), []error{nil, redis.ErrPoolTimeout}[rand.IntN(2)], 0)
					}
					time.Sleep(time.Duration(1+rand.IntN(3)) * time.Microsecond) // what is under way is refunded meanwhile: there is a bound
					cs := checks()
					d, err := g.Take(context.Background(), cs...)
					if err != nil {
						t.Error(err)
					}
					granted := int64(0)
					for _, r := range d.Results {
						if r.Charged > 0 && !d.Allowed {
							t.Errorf("denied and charged: %+v", d)
						}
						if !r.Check.Shadow && r.Charged > 0 {
							if granted > 0 && r.Charged != granted {
								t.Errorf("one request was granted different numbers: %+v", d)
							}
							granted = r.Charged
						}
						if r.Source != algorithms.SourceRedis || r.Charged == 0 {
							continue
						}
						if rand.IntN(4) == 0 {
							_ = settleAll(context.Background(), g, 0, r)
						} else {
							charged[n.Shard(r.Check.Key)].Add(r.Charged)
						}
					}
				}
			})
		}
		all.Wait()
		_ = g.Close()
		for shard := 1; shard <= 3; shard++ {
			c := algorithms.Check{Rule: "r", Key: fmt.Sprint(shard), Limit: algorithms.Limit{Rate: 301, Period: 24 * time.Hour, Algorithm: algorithms.FixedWindow}}
			d, _ := n.Memory.Peek(context.Background(), c)
			if used := 301 - d.Results[0].Remaining; used != charged[shard].Load() {
				t.Errorf("shard %d: %d used, %d charged", shard, used, charged[shard].Load())
			}
		}
	})
}
