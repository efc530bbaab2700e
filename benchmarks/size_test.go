package benchmarks

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/throttled/throttled/v2"
	throttledredis "github.com/throttled/throttled/v2/store/goredisstore.v9"
	ulule "github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/seed75154129/ratelimit/algorithms"
)

// BenchmarkKey is how many bytes a client's key takes in Redis, by MEMORY USAGE,
// with the same rule, client, limit and costs for each algorithm. Its time means
// nothing.
func BenchmarkKey(b *testing.B) {
	const rate = 60_000
	client := start(b).theirs
	ours := algorithms.Redis{Client: client, Namespace: "shop", Budget: patience}
	for _, name := range []algorithms.Algorithm{algorithms.FixedWindow, algorithms.SlidingWindow, algorithms.TokenBucket} {
		limit := algorithms.Limit{Rate: rate, Period: time.Second, Algorithm: name}
		b.Run(name.String(), func(b *testing.B) {
			measureKeys(b, client, func(addr string, cost int64) error {
				_, err := ours.Take(context.Background(), algorithms.Check{Rule: "ip", Key: addr, Limit: limit, Cost: cost})
				return err
			})
		})
	}
	b.Run("redis_rate", func(b *testing.B) {
		theirs := redis_rate.NewLimiter(client)
		measureKeys(b, client, func(addr string, cost int64) error {
			_, err := theirs.AllowN(context.Background(), "shop:ip:"+addr, redis_rate.PerSecond(rate), int(cost))
			return err
		})
	})
	b.Run("throttled", func(b *testing.B) {
		store, err := throttledredis.NewCtx(client, "shop:ip:")
		if err != nil {
			b.Fatal(err)
		}
		quota := throttled.RateQuota{MaxRate: throttled.PerSec(rate), MaxBurst: rate - 1}
		theirs, err := throttled.NewGCRARateLimiterCtx(store, quota)
		if err != nil {
			b.Fatal(err)
		}
		measureKeys(b, client, func(addr string, cost int64) error {
			_, _, err := theirs.RateLimitCtx(context.Background(), addr, int(cost))
			return err
		})
	})
	b.Run("ulule", func(b *testing.B) {
		store, err := ululeredis.NewStoreWithOptions(client, ulule.StoreOptions{Prefix: "shop:ip"})
		if err != nil {
			b.Fatal(err)
		}
		theirs := ulule.New(store, ulule.Rate{Period: time.Second, Limit: rate})
		measureKeys(b, client, func(addr string, cost int64) error {
			_, err := theirs.Increment(context.Background(), addr, cost)
			return err
		})
	})
}

func measureKeys(b *testing.B, client *redis.Client, take func(addr string, cost int64) error) {
	b.Helper()
	ctx := context.Background()
	addrs := make([]string, 100) // none is the beginning of another
	for i := range addrs {
		addrs[i] = ip(100 + i)
	}
	if err := client.FlushAll(ctx).Err(); err != nil {
		b.Fatal(err)
	}
	fill := func(addr string) {
		// The second makes the count longer: a string that grows may take more. The
		// third does not: then it may be written in place.
		if err := errors.Join(take(addr, 999), take(addr, 12_345), take(addr, 1)); err != nil {
			b.Fatal(err)
		}
	}
	for _, a := range addrs {
		fill(a)
	}
	// In the next second a sliding window has two counts to keep.
	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
	var keys, bytes int64
	for _, a := range addrs {
		fill(a)
		// At once: the key of a bucket is soon gone.
		for _, key := range client.Keys(ctx, "*"+a+"*").Val() {
			bytes += client.MemoryUsage(ctx, key).Val()
			keys++
		}
	}
	if keys < int64(len(addrs)) {
		b.Fatalf("found %d keys of %d clients", keys, len(addrs))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(bytes)/float64(keys), "bytes/key")
}
