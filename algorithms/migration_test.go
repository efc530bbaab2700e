package algorithms

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/internal/redistest"
	"github.com/seed75154129/ratelimit/internal/step"
)

// TestClusterUnderLoad takes requests from goroutines while the slots of their keys
// move from master to master. Each time, every slot is half moved for a while:
// requests go on with keys that the old owner has, and with others that are new
// and so are the new owner's, one of each in the same slot.
//
// Keys of one request are in different slots, so each check is decided by itself, and
// what a denied request was charged is given back in the same call. What that may leave
// behind is said at wantCounted.
func TestClusterUnderLoad(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	opts := *cluster.Client(t).Options()
	opts.ReadTimeout = roomy
	client := redis.NewClusterClient(&opts)
	t.Cleanup(func() { client.Close() })
	r := &Redis{Client: client, Namespace: "moving", Budget: roomy}
	const (
		goroutines = 8
		limit      = 20 // of the new keys
		enough     = 2*limit + goroutines
	)
	phases := len(step.Table) // each algorithm once has the tight limit
	keys := keysOfMasters(t, cluster)
	requests := make([][]Check, phases)
	for i := range requests {
		requests[i] = []Check{
			{Rule: "old", Key: keys[i%3], Limit: endless(following(i, 1), wide)},
			{Rule: "old", Key: keys[(i+1)%3], Limit: endless(following(i, 2), wide)},
			{Rule: "beside", Key: keys[(i+2)%3], Limit: endless(following(i, 3), wide)},
			{Rule: fmt.Sprint("new-", i), Key: keys[(i+2)%3], Limit: endless(following(i, 0), limit)},
		}
	}
	old := make([][]Check, len(requests))
	for i := range requests {
		old[i] = requests[i][:3]
	}
	first := firstOf(t, r, old)

	var now, decided, took atomic.Int64 // which request, how many in all, and how long the denied ones
	got, enoughLoad := tally{admitted: make([]int64, phases)}, errors.New("enough")
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	var load sync.WaitGroup
	for g := range goroutines {
		load.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				i, begin := now.Load(), time.Now()
				d, err := r.Take(ctx, rotated(requests[i], n+g)...)
				if err := cmp.Or(err, errOf(d)); err != nil {
					stop(err)
				}
				if d.Allowed {
					atomic.AddInt64(&got.admitted[i], 1)
				} else {
					took.Add(int64(time.Since(begin)))
				}
				decided.Add(1)
			}
		})
	}
	more := func(n int64) { // until so many more have been decided
		for until := decided.Load() + n; decided.Load() < until && ctx.Err() == nil; {
			time.Sleep(time.Millisecond)
		}
	}
	begin := time.Now()
	for phase := range requests {
		var finish []func()
		for _, key := range keys {
			finish = append(finish, cluster.BeginMigration(t, slotOf(t, cluster, key)))
		}
		now.Store(int64(phase))
		more(enough) // half moved
		for _, f := range finish {
			f()
		}
		more(goroutines) // moved
	}
	stop(enoughLoad)
	load.Wait()
	if err := context.Cause(ctx); !errors.Is(err, enoughLoad) {
		t.Fatal(err)
	}
	got.took = time.Duration(took.Load())
	t.Logf("%d slots moved %d times in %s, under %d requests, admitted %d",
		len(keys), phases, time.Since(begin).Round(time.Millisecond), decided.Load(), got.admitted)

	for i, n := range got.admitted {
		if n != limit {
			t.Errorf("%s: admitted %d, want %d", requests[i][3].Limit, n, limit)
		}
		if used := usedOf(t, r, requests[i][3]); used != limit {
			t.Errorf("%s: %d counted, want %d", requests[i][3].Limit, used, limit)
		}
	}
	wantCounted(t, r, first, &got, old)
}

// firstOf takes a unit of every check, so that no bucket is ever full again.
func firstOf(t *testing.T, r *Redis, requests [][]Check) map[Check]Result {
	t.Helper()
	first := map[Check]Result{}
	for _, checks := range requests {
		for _, c := range checks {
			if _, taken := first[c]; taken {
				continue
			}
			d, err := r.Take(t.Context(), c)
			if err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
			first[c] = d.Results[0]
		}
	}
	return first
}

// wantCounted wants the counts to be what was admitted, beside the first of
// each, now that nobody takes.
//
// Windows and logs count exactly that. token_bucket and gcra get back what they
// have not refilled since, so that of each denied request they keep as much
// time as passed between the charge and its return: no more than the request
// took. leaky_bucket gets a slot back only while it is the last.
func wantCounted(t *testing.T, r *Redis, first map[Check]Result, got *tally, requests [][]Check) {
	t.Helper()
	for c, admitted := range got.used(requests) {
		d, err := r.Peek(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		res := d.Results[0]
		row := c.Limit.row()
		if !row.Bucket {
			if n := c.Limit.Quota() - res.Remaining - 1; n != admitted {
				t.Errorf("rule %s, key %s, %s: %d counted, %d admitted", c.Rule, c.Key, c.Limit, n, admitted)
			}
			continue
		}
		// By how much later the bucket is full than the admitted alone make it.
		unit := c.Limit.Period / time.Duration(c.Limit.Rate)
		before, after := first[c], res
		over := after.At.Add(after.ResetAfter).Sub(before.At.Add(before.ResetAfter)) - time.Duration(admitted)*unit
		if over < 0 || over > got.took && !row.Queue {
			t.Errorf("rule %s, key %s, %s: %s counted beside the %d admitted, all denied requests took %s",
				c.Rule, c.Key, c.Limit, over, admitted, got.took)
		}
	}
}

// keysOfMasters are keys whose slots begin on different masters.
func keysOfMasters(t *testing.T, cluster *redistest.Cluster) []string {
	t.Helper()
	keys := map[*redistest.Server]string{}
	for n := 0; len(keys) < len(cluster.Masters); n++ {
		key := fmt.Sprint("client-", n)
		keys[cluster.Owner(t, slotOf(t, cluster, key))] = key
	}
	var all []string
	for _, m := range cluster.Masters {
		all = append(all, keys[m])
	}
	return all
}

// slotOf is the slot of whatever is counted for a short key.
func slotOf(t *testing.T, cluster *redistest.Cluster, key string) int {
	t.Helper()
	slot, err := cluster.Masters[0].Client(t).ClusterKeySlot(t.Context(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	return int(slot)
}
