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
			l := Limit{Rate: 5, Period: time.Minute, Algorithm: Algorithm(rated.Rows[i].Number)}
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

// A Backend is a Redis under test, on a clock that the test sets.
type Backend struct {
	*Redis
	Client  redis.UniversalClient
	SetTime func(us int64)
	Flush   func()
	TTL     func(key string) time.Duration // whole milliseconds; negative if there is none
}

func backendOf(client redis.UniversalClient, clock *redistest.Clock) Backend {
	return Backend{
		Redis:   &Redis{Client: client, Namespace: "test", Budget: roomy, now: clock.Now},
		Client:  client,
		SetTime: func(us int64) { clock.Set(time.UnixMicro(us)) },
		Flush:   func() { client.FlushAll(context.Background()) },
		TTL:     func(key string) time.Duration { return client.PTTL(context.Background(), key).Val() },
	}
}

func MiniBackend(t *testing.T) Backend {
	mr := miniredis.RunT(t) // on a socket, since over a net.Pipe a long pipeline stands still
	mr.ClockTTL(true)
	b, clock := backendOf((&redistest.Server{Addr: mr.Addr()}).Client(t), nil), int64(0)
	b.now = func() time.Time { return time.UnixMicro(clock) }
	b.SetTime = func(us int64) {
		if us < clock { // as in Redis, what expires at a time expires at that time
			for _, key := range mr.Keys() {
				mr.SetTTL(key, mr.TTL(key)+time.Duration(clock-us)*time.Microsecond)
			}
		}
		clock = us
		mr.SetTime(time.UnixMicro(us))
	}
	b.Flush, b.TTL = mr.FlushAll, mr.TTL
	b.SetTime(someTime)
	return b
}

func RealBackend(t *testing.T) Backend {
	srv, clock := redistest.StartWithClock(t)
	return backendOf(srv.Client(t), clock)
}

func ClusterBackend(t *testing.T) Backend {
	cluster, clock := redistest.StartClusterWithClock(t)
	var masters []*redis.Client
	for _, m := range cluster.Masters {
		masters = append(masters, m.Client(t))
	}
	b := backendOf(cluster.Client(t), clock)
	b.Flush = func() {
		for _, m := range masters {
			m.FlushAll(context.Background())
		}
	}
	return b
}

func mustTake(t *testing.T, l Limiter, checks ...Check) []Result {
	t.Helper()
	d, err := l.Take(t.Context(), checks...)
	if err != nil {
		t.Fatal(err)
	}
	return d.Results
}
