package failmode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
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

// witnessless is a Redis to which nobody can connect beside its client.
type witnessless struct{ store }

func (witnessless) Dial(context.Context, int) (net.Conn, error) { return nil, errors.ErrUnsupported }

// A connection that breaks takes a whole batch with it. That is one failure, not
// one for each decision: a circuit that opened by it would open for every
// connection that a proxy closes.
func TestALostBatchIsOneFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := redis.NewClient(algorithms.FailFast(&redis.Options{Addr: "127.0.0.1:1"}))
		defer client.Close()
		defer time.Sleep(10 * time.Second) // connections that are made in the background, also for the last probe
		client.AddHook(lossyServer{})
		r := &algorithms.Redis{Client: client, Namespace: "test"}
		g := &Guard{Limiter: r, Instances: 1, Logger: slog.New(slog.DiscardHandler), store: witnessless{lent.Store(r)}}
		defer g.Close()
		lose := func(decisions int) {
			var all sync.WaitGroup
			for i := range decisions {
				all.Go(func() {
					d, err := g.Take(t.Context(), algorithms.Check{Rule: "r", Key: fmt.Sprint(i), Limit: algorithms.PerHour(5)})
					if err != nil || d.Results[0].Source != algorithms.SourceFallback {
						t.Errorf("%+v, %v; want a local decision", d, err)
					}
				})
				synctest.Wait()
			}
			all.Wait()
		}
		lose(3 + 60) // three alone, and a batch of the others
		if down := down(g); len(down) > 0 {
			t.Error("four lost connections opened the circuit")
		}
		lose(1)
		if down := down(g); len(down) == 0 {
			t.Error("five lost connections did not open the circuit")
		}
	})
}
