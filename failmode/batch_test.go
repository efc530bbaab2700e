package failmode

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
)

// A lossyServer answers a client's flushes with the end of the connection, after
// a millisecond.
type lossyServer struct{}

func (lossyServer) DialHook(next redis.DialHook) redis.DialHook { return next }

func (lossyServer) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		time.Sleep(time.Millisecond)
		cmd.SetErr(io.EOF)
		return io.EOF
	}
}

func (lossyServer) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		time.Sleep(time.Millisecond)
		for _, cmd := range cmds {
			cmd.SetErr(io.EOF)
		}
		return io.EOF
	}
}

// probed is a Redis whose probes are good.
type probed struct{ store }

func (probed) Ask(context.Context, int, bool) error { return nil }

// A connection that breaks takes a whole batch with it. That is one failure, not
// one for each decision: with good probes, a circuit that opened by it would open for
// every connection that a proxy closes.
func TestALostBatchIsOneFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := redis.NewClient(algorithms.FailFast(&redis.Options{Addr: "127.0.0.1:1"}))
		defer client.Close()
		defer time.Sleep(10 * time.Second) // connections that are made in the background, also for the last probe
		client.AddHook(lossyServer{})
		r := &algorithms.Redis{Client: client, Namespace: "test"}
		g := &Guard{Limiter: r, Instances: 1, Logger: slog.New(slog.DiscardHandler), store: probed{r.Store()}}
		defer g.Close()
		decisions := 0
		lose := func(n int) {
			var all sync.WaitGroup
			for range n {
				decisions++
				all.Go(func() {
					if _, err := g.Take(t.Context(), algorithms.Check{Rule: "r", Key: fmt.Sprint(decisions), Limit: algorithms.PerHour(5)}); err != nil {
						t.Error(err)
					}
				})
				synctest.Wait()
			}
			all.Wait()
			synctest.Wait()
		}
		for range 4 {
			lose(3 + 60) // three alone, and a batch of the others
		}
		if down := down(g); len(down) > 0 {
			t.Error("16 lost connections opened the circuit")
		}
		lose(3)
		lose(1)
		if down := down(g); len(down) == 0 {
			t.Error("20 lost connections did not open the circuit")
		}
	})
}
