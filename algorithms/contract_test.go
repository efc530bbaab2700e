package algorithms_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/algorithms/limitertest"
	"github.com/seed75154129/ratelimit/internal/redistest"
)

func TestContractMemory(t *testing.T) {
	t.Parallel()
	limitertest.Run(t, func(*testing.T) limitertest.Subject {
		return limitertest.Subject{Limiter: new(algorithms.Memory)}
	})
}

func TestContractMiniredis(t *testing.T) {
	t.Parallel()
	limitertest.Run(t, func(t *testing.T) limitertest.Subject {
		return limitertest.Subject{Limiter: &algorithms.Redis{Client: limitertest.Redis(t), Namespace: "test"}}
	})
}

func TestContractRedis(t *testing.T) {
	t.Parallel()
	testContractRedis(t, func(t *testing.T, s *redistest.Server) *algorithms.Redis {
		return &algorithms.Redis{Client: s.Client(t)}
	}, asItIs)
}

// TestContractRedisJointly sends each check that it can through the joint script.
func TestContractRedisJointly(t *testing.T) {
	t.Parallel()
	testContractRedis(t, func(t *testing.T, s *redistest.Server) *algorithms.Redis {
		return &algorithms.Redis{Client: s.Client(t)}
	}, algorithms.Jointly)
}

func asItIs(r *algorithms.Redis) algorithms.Limiter { return r }

// TestContractRedisDefaultOptions is about clients that do not heed deadlines,
// where each command runs in a goroutine of its own.
func TestContractRedisDefaultOptions(t *testing.T) {
	t.Parallel()
	testContractRedis(t, func(t *testing.T, s *redistest.Server) *algorithms.Redis {
		client := redis.NewClient(&redis.Options{Addr: s.Addr})
		t.Cleanup(func() { _ = client.Close() })
		return &algorithms.Redis{Client: client}
	}, asItIs)
}

// TestContractRedisSharded sends each check alone, as to a cluster. A cluster
// itself cannot pass: its clock runs.
func TestContractRedisSharded(t *testing.T) {
	t.Parallel()
	testContractRedis(t, func(t *testing.T, s *redistest.Server) *algorithms.Redis {
		return &algorithms.Redis{Client: s.Client(t), Sharded: true}
	}, asItIs)
}

// testContractRedis serves all cases with one server, each in a namespace of
// its own.
func testContractRedis(t *testing.T, redis func(*testing.T, *redistest.Server) *algorithms.Redis, limiter func(*algorithms.Redis) algorithms.Limiter) {
	server, clock := redistest.StartWithClock(t)
	cases := 0
	limitertest.Run(t, func(t *testing.T) limitertest.Subject {
		cases++
		r := redis(t, server)
		r.Namespace = fmt.Sprint("case-", cases)
		r.Budget = time.Minute // a connection's deadline is in real time
		return limitertest.Subject{Limiter: limiter(r), Advance: clock.Advance}
	})
}
