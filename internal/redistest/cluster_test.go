package redistest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

var incr = redis.NewScript(`return redis.call('INCRBY', KEYS[1], ARGV[1])`)

// That every node knows all slots and roles, StartCluster waits for.
func TestHalfMigratedSlot(t *testing.T) {
	t.Parallel()
	c := StartCluster(t)
	rdb, ctx := c.Client(t), t.Context()
	key := func(name string, i int) string { return fmt.Sprintf("{moving}:%s:%d", name, i) }
	slot := int(rdb.ClusterKeySlot(ctx, "{moving}").Val())
	// More than one MIGRATE moves.
	for i := range 150 {
		rdb.Set(ctx, key("old", i), 40, time.Hour)
	}
	from := c.Owner(t, slot)

	finish := c.BeginMigration(t, slot)
	wantKeys := func(name string, n int, want int64) {
		t.Helper()
		for i := range n {
			if got, err := incr.Run(ctx, rdb, []string{key(name, i)}, 1).Int64(); err != nil || got != want {
				t.Fatalf("EVALSHA %s = %d, %v, want %d", key(name, i), got, err, want)
			}
		}
	}
	wantKeys("old", 10, 41) // at the old owner
	wantKeys("new", 10, 1)  // at the new one, by ASK
	two := redis.NewScript(`return redis.call('EXISTS', KEYS[1], KEYS[2])`)
	err := two.Run(ctx, rdb, []string{key("old", 0), key("absent", 0)}).Err()
	if err == nil || !strings.HasPrefix(err.Error(), "TRYAGAIN") {
		t.Errorf("a script with a key here and one there: %v, want TRYAGAIN", err)
	}
	if c.Owner(t, slot) != from {
		t.Error("the slot has moved already")
	}

	finish()
	finish() // does nothing
	to := c.Owner(t, slot)
	if to == from {
		t.Error("the slot has not moved")
	}
	for _, m := range c.Masters {
		// All know it at once, and not when gossip reaches them.
		err := m.Client(t).Get(ctx, key("old", 0)).Err()
		if want := fmt.Sprintf("MOVED %d %s", slot, to.Addr); m != to && (err == nil || err.Error() != want) {
			t.Errorf("%s: %v, want %s", m.Addr, err, want)
		}
	}
	wantKeys("old", 10, 42)
	wantKeys("new", 10, 2)
	if ttl := rdb.TTL(ctx, key("old", 149)).Val(); ttl < 59*time.Minute {
		t.Errorf("TTL %v did not move with its key", ttl)
	}
	if n := from.Client(t).ClusterCountKeysInSlot(ctx, slot).Val(); n != 0 {
		t.Errorf("the old owner still has %d keys", n)
	}
}
