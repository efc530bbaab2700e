package algorithms

import (
	"context"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/internal/rated"
	"github.com/seed75154129/ratelimit/internal/redistest"
	"github.com/seed75154129/ratelimit/internal/step"
)

const (
	someTime = int64(1_795_000_000_000_000) // µs
	year     = int64(365 * 24 * time.Hour / time.Microsecond)
)

// storeOf is a Redis as package failmode has it.
var storeOf = (*Redis).Store

// eachAlgorithm runs a test for every algorithm at 5 a minute.
func eachAlgorithm(t *testing.T, f func(t *testing.T, l Limit)) {
	t.Helper()
	for i := range rated.Rows {
		t.Run(rated.Rows[i].Name, func(t *testing.T) {
			l := Limit{Rate: 5, Period: time.Minute, Algorithm: Algorithm(rated.Rows[i].Name)}
			if rated.Rows[i].Queue {
				l.Burst = 5
			}
			f(t, l)
		})
	}
}

func peekOne(t *testing.T, m *Memory, check Check) Result {
	t.Helper()
	d, err := m.Peek(t.Context(), check)
	if err != nil {
		t.Fatal(err)
	}
	return d.Results[0]
}

// asText are the algorithms whose state is a text in Redis.
var asText = rated.Without(func(row step.Row) bool { return row.Summary })

// A backend is a store under test, with a clock that the test sets.
type backend struct {
	limiter Limiter
	setTime func(us int64)
	flush   func()
	del     func(key string)
	ttl     func(key string) time.Duration // whole milliseconds; negative if there is none
}

func memoryBackend(*testing.T) backend {
	now := int64(0)
	clock := func() time.Time { return time.UnixMicro(now) }
	m := &Memory{Now: clock}
	return backend{
		limiter: m,
		setTime: func(us int64) { now = us },
		flush:   func() { *m = Memory{Now: clock} },
	}
}

func miniBackend(t *testing.T) backend {
	t.Helper()
	mr := miniredis.RunT(t) // on a socket, since over a net.Pipe a long pipeline stands still
	mr.SetTime(time.UnixMicro(someTime))
	mr.ClockTTL(true)
	client := (&redistest.Server{Addr: mr.Addr()}).Client(t)
	var clock int64
	r := &Redis{Client: client, Namespace: "test", Budget: roomy, now: func() time.Time { return time.UnixMicro(clock) }}
	return backend{
		limiter: r,
		setTime: func(us int64) {
			if us < clock {
				// As in Redis, what expires at a time expires at that time.
				for _, key := range mr.Keys() {
					mr.SetTTL(key, mr.TTL(key)+time.Duration(clock-us)*time.Microsecond)
				}
			}
			clock = us
			mr.SetTime(time.UnixMicro(us))
		},
		flush: mr.FlushAll,
		del:   func(key string) { mr.Del(key) },
		ttl:   mr.TTL,
	}
}

func realBackend(t *testing.T) backend {
	t.Helper()
	srv, clock := redistest.StartWithClock(t)
	client := srv.Client(t)
	return backend{
		limiter: &Redis{Client: client, Namespace: "test", Budget: roomy, now: clock.Now},
		setTime: func(us int64) { clock.Set(time.UnixMicro(us)) },
		flush:   func() { client.FlushAll(context.Background()) },
		del:     func(key string) { client.Del(context.Background(), key) },
		ttl:     func(key string) time.Duration { return client.PTTL(context.Background(), key).Val() },
	}
}

func clusterBackend(t *testing.T) backend {
	t.Helper()
	cluster, clock := redistest.StartClusterWithClock(t)
	client := cluster.Client(t)
	var masters []*redis.Client
	for _, m := range cluster.Masters {
		masters = append(masters, m.Client(t))
	}
	return backend{
		limiter: &Redis{Client: client, Namespace: "test", Budget: roomy, now: clock.Now},
		setTime: func(us int64) { clock.Set(time.UnixMicro(us)) },
		flush: func() {
			for _, m := range masters {
				m.FlushAll(context.Background())
			}
		},
		del: func(key string) { client.Del(context.Background(), key) },
		ttl: func(key string) time.Duration { return client.PTTL(context.Background(), key).Val() },
	}
}

func mustTake(t *testing.T, l Limiter, checks ...Check) []Result {
	t.Helper()
	d, err := l.Take(t.Context(), checks...)
	if err != nil {
		t.Fatal(err)
	}
	return d.Results
}
