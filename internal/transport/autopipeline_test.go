package transport_test

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/redistest"
)

// An autopipeliner of go-redis is done with a command long after Process has
// returned, or does not look at contexts. It counts all the same.
func TestRedisThroughAutoPipeliners(t *testing.T) {
	srv, cluster := redistest.Start(t), redistest.StartCluster(t)
	made := func(a *redis.AutoPipeliner, err error) algorithms.Client {
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	single, several := srv.Client(t), cluster.Client(t)
	var duplex redis.AutoPipelineOptions
	if field := reflect.ValueOf(&duplex).Elem().FieldByName("FullDuplex"); field.IsValid() { // since go-redis 9.23
		field.SetBool(true)
	}
	for name, r := range map[string]*algorithms.Redis{
		"blocking":          {Client: made(single.AutoPipeline())},
		"async":             {Client: made(single.AsyncAutoPipeline())},
		"full duplex":       {Client: made(srv.Client(t).AutoPipelineWithOptions(&duplex))},
		"blocking, cluster": {Client: made(several.AutoPipeline()), Sharded: true},
		"async, cluster":    {Client: made(several.AsyncAutoPipeline()), Sharded: true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, server := range append(cluster.Masters, srv) {
				server.Client(t).ScriptFlush(t.Context()) // or only the first of these would have to send it
			}
			r.Namespace, r.Budget = "test", roomy
			if err := r.Validate(); err != nil {
				t.Fatal(err)
			}
			var admitted atomic.Int64
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					for range 20 {
						d, err := r.Take(t.Context(), algorithms.Check{Rule: name, Key: "a", Limit: perDay(30)}, algorithms.Check{Rule: name, Key: "b", Limit: perDay(1000)})
						if err != nil {
							t.Error(err)
							return
						}
						if d.Allowed {
							admitted.Add(1)
						}
					}
				})
			}
			all.Wait()
			if n := admitted.Load(); n != 30 {
				t.Errorf("admitted %d, want 30", n)
			}
			if err := r.Reset(t.Context(), algorithms.Check{Rule: name, Key: "a", Limit: perDay(30)}); err != nil {
				t.Errorf("reset: %v", err)
			}
			if d, err := r.Peek(t.Context(), algorithms.Check{Rule: name, Key: "a", Limit: perDay(30)}); err != nil || d.Results[0].Remaining != 30 {
				t.Errorf("after Reset: %+v, %v", d, err)
			}
		})
	}

	t.Run("within the budget", func(t *testing.T) {
		srv.Pause(t)
		defer srv.Resume(t)
		for _, client := range []algorithms.Client{made(single.AutoPipeline()), made(single.AsyncAutoPipeline())} {
			r := &algorithms.Redis{Client: client, Namespace: "test", Budget: 20 * time.Millisecond}
			begin := time.Now()
			_, err := r.Take(t.Context(), algorithms.Check{Rule: "r", Limit: perDay(1)})
			if took := time.Since(begin); !errors.Is(err, context.DeadlineExceeded) || took > time.Second {
				t.Errorf("took %s: %v", took, err)
			}
		}
	})
}
