package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// A hook that panics ends the requests whose decisions were sent with it, as net/http
// recovers them, and takes no place with it. It does not end the process, on
// whichever goroutine it runs.
func TestAPanicEndsItsRequestsOnly(t *testing.T) {
	inBubbles(t, func(t *testing.T, direct bool) {
		var broken atomic.Bool
		r := served(t, direct, func(_ context.Context, cmds []redis.Cmder) {
			time.Sleep(time.Millisecond)
			if broken.Load() {
				panic("broken hook")
			}
			admit(cmds...)
		})
		broken.Store(true)
		var all sync.WaitGroup
		for i := range 2 * transport.MaxBatch { // alone, and in batches
			all.Go(func() {
				defer func() {
					if v := fmt.Sprint(recover()); !strings.HasPrefix(v, "broken hook") {
						t.Errorf("decision %d: panic %q", i, v)
					}
				}()
				err := taken(r, "r", fmt.Sprint(i))
				t.Errorf("decision %d did not panic: %v", i, err)
			})
		}
		all.Wait()
		broken.Store(false)
		if err := taken(r, "r", "later"); err != nil {
			t.Error(err)
		}
		for _, idle := range storeOf(r).Idle() {
			select {
			case <-idle:
			default:
				t.Error("something is still under way")
			}
		}
	})
}

// Decisions that several servers share are sent on several goroutines.
func TestAPanicOnAnotherServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := redis.NewRing(algorithms.FailFast(&redis.RingOptions{
			Addrs: map[string]string{"a": "127.0.0.1:1", "b": "127.0.0.1:2"}, HeartbeatFrequency: time.Hour}))
		defer ring.Close()
		ring.AddHook(server(func(_ context.Context, cmds []redis.Cmder) {
			for _, cmd := range cmds {
				if strings.Contains(fmt.Sprint(cmd.Args()[3]), "{0}") {
					admit(cmd)
					continue
				}
				panic("broken hook")
			}
		}))
		r := &algorithms.Redis{Client: ring, Namespace: "test"}
		checks := keysEverywhere("r")
		shard := func(c algorithms.Check) int { return storeOf(r).Shard(c.Key) }
		first := shard(checks[0])
		checks = slices.DeleteFunc(checks, func(c algorithms.Check) bool { return c.Key != "0" && shard(c) == first })
		defer func() {
			if v := fmt.Sprint(recover()); !strings.HasPrefix(v, "broken hook") {
				t.Errorf("panic %q", v)
			}
		}()
		d, err := r.Take(t.Context(), checks...)
		t.Error("did not panic: ", d, err)
	})
}

// A clumsy hook panics whenever it is not asked for a decision.
type clumsy struct {
	server
	panics atomic.Int32
}

func (c *clumsy) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return c.serve(ctx, []redis.Cmder{cmd}) }
}
func (c *clumsy) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return c.serve
}

func (c *clumsy) serve(ctx context.Context, cmds []redis.Cmder) error {
	if cmds[0].Name() != "evalsha" {
		c.panics.Add(1)
		panic("broken hook")
	}
	return c.server.serve(ctx, cmds)
}

// A hook that panics while connections are made ends nothing.
func TestAPanicWhileConnecting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := redis.NewClient(algorithms.FailFast(&redis.Options{Addr: "127.0.0.1:1"}))
		defer client.Close()
		hook := &clumsy{server: func(_ context.Context, cmds []redis.Cmder) { cmds[0].SetErr(io.EOF) }}
		client.AddHook(hook)
		r := &algorithms.Redis{Client: client, Namespace: "test"}
		if err := taken(r, "r", "a"); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
		if synctest.Wait(); hook.panics.Load() == 0 {
			t.Error("no connection was made in the background")
		}
		if err := storeOf(r).Warm(t.Context()); err == nil || !strings.Contains(err.Error(), "broken hook") {
			t.Error(err)
		}
		if _, err := storeOf(r).ServerWarnings(t.Context()); err == nil || !strings.Contains(err.Error(), "broken hook") {
			t.Error(err)
		}
	})
}
