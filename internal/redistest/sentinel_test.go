package redistest

import (
	"testing"
	"time"
)

func TestSentinel(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	s := StartSentinel(t, "--maxmemory", "42mb")
	t.Logf("started in %v", time.Since(begin))
	rdb, ctx := s.Client(t), t.Context()
	if err := rdb.Set(ctx, "k", "before", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := rdb.Wait(ctx, 1, ioTimeout).Err(); err != nil {
		t.Fatal(err)
	}
	for _, node := range []*Server{s.Master, s.Replica} {
		if got := node.Client(t).ConfigGet(ctx, "maxmemory").Val()["maxmemory"]; got != itoa(42<<20) {
			t.Errorf("%s: maxmemory = %s: the argument did not arrive", node.Addr, got)
		}
	}

	s.Master.Stop(t)
	begin = time.Now()
	if err := waitUntil(nil, clusterEvery, func() error { return rdb.Set(ctx, "k", "after", 0).Err() }); err != nil {
		t.Fatal(err)
	}
	t.Logf("failed over in %v", time.Since(begin))
	if got := s.Replica.Client(t).Get(ctx, "k").Val(); got != "after" {
		t.Errorf("the replica has %q, want what was written after the failover", got)
	}
}
