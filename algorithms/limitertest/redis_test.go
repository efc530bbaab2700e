package limitertest_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/algorithms/limitertest"
	"github.com/seed75154129/ratelimit/failmode"
)

func TestRedisFollowsTheBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := limitertest.Redis(t)
		rdb.Set(t.Context(), "k", "v", time.Minute)
		for range 3 {
			time.Sleep(19*time.Second + 123456*time.Microsecond)
			if got, err := rdb.Time(t.Context()).Result(); err != nil || !got.Equal(time.Now()) {
				t.Errorf("TIME = %v, %v, want %v", got, err, time.Now())
			}
		}
		if got := rdb.PTTL(t.Context(), "k").Val(); got != 2629*time.Millisecond {
			t.Errorf("PTTL = %v, want 2.629s", got)
		}
		time.Sleep(2630 * time.Millisecond)
		if err := rdb.Get(t.Context(), "k").Err(); !errors.Is(err, redis.Nil) {
			t.Errorf("GET of an expired key: %v, want redis.Nil", err)
		}
	})
}

// TestRedisInManyBubbles has so many callers at once that a pool of the default
// size would make them wait, on timers that do not survive their bubble.
func TestRedisInManyBubbles(t *testing.T) {
	for range 3 {
		synctest.Test(t, func(t *testing.T) {
			rdb := limitertest.Redis(t)
			var callers sync.WaitGroup
			for range 100 {
				callers.Go(func() {
					for range 3 {
						if err := rdb.Incr(t.Context(), "n").Err(); err != nil {
							t.Error(err)
						}
					}
				})
			}
			callers.Wait()
			if n, err := rdb.Get(t.Context(), "n").Int(); n != 300 || err != nil {
				t.Errorf("counted to %d, %v, want 300", n, err)
			}
		})
	}
}

// TestRedisPipeline is about commands and replies that are more than fits into
// what either end reads at once.
func TestRedisPipeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb, begin := limitertest.Redis(t), time.Now()
		value := strings.Repeat("v", 1000)
		pipe := rdb.Pipeline()
		var replies []*redis.StringCmd
		for n := range 1000 {
			pipe.Set(t.Context(), fmt.Sprint(n), value, 0)
			replies = append(replies, pipe.Get(t.Context(), fmt.Sprint(n)))
		}
		if _, err := pipe.Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
		for n, reply := range replies {
			if reply.Val() != value {
				t.Fatalf("reply %d: %.10q…", n, reply.Val())
			}
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("it took %v of fake time", took)
		}
	})
}

func TestRedisOutsideABubble(t *testing.T) {
	if err := limitertest.Redis(t).Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
}

func TestRedisServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb, server := limitertest.RedisServer(t)
		rdb.Set(t.Context(), "k", "v", 0)
		if got, err := server.Get("k"); got != "v" || err != nil {
			t.Errorf("the server has %q, %v", got, err)
		}
		options := *rdb.Options()
		second := redis.NewClient(algorithms.FailFast(&options))
		defer second.Close()
		if got := second.Get(t.Context(), "k").Val(); got != "v" {
			t.Errorf("another client gets %q", got)
		}
		for name, client := range map[string]*redis.Client{"the client": rdb, "another client": second} {
			var log strings.Builder // nobody is warned of options of a client that is made here
			guard := &failmode.Guard{Limiter: &algorithms.Redis{Client: client, Namespace: "app"}, Logger: slog.New(slog.NewTextHandler(&log, nil))}
			if d, err := guard.Take(t.Context(), algorithms.Check{Rule: name, Limit: algorithms.PerMinute(1)}); err != nil || !d.Allowed {
				t.Error(d, err)
			}
			time.Sleep(time.Minute)
			if err := errors.Join(guard.Warm(t.Context()), guard.Close()); err != nil || log.Len() > 0 {
				t.Errorf("%s: %v\n%s", name, err, &log)
			}
		}
		server.Close() // for good, also for new clients
		for range 3 {
			if rdb.Ping(t.Context()).Err() == nil || second.Ping(t.Context()).Err() == nil {
				t.Fatal("a closed server answers")
			}
		}
	})
}
