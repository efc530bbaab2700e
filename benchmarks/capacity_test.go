package benchmarks

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/internal/redistest"
)

// BenchmarkKeys is a decision for one of few keys and for one of very many, in
// one Redis and in this process, and how many bytes each key takes. KEYS says
// how many are very many.
func BenchmarkKeys(b *testing.B) {
	many, _ := strconv.Atoi(os.Getenv("KEYS"))
	if many < 2*few {
		b.Skip("make bench-keys runs it")
	}
	for _, l := range []struct {
		name  string
		limit algorithms.Limit
	}{ // of which no key is like new again while this runs
		{"token_bucket", algorithms.Limit{Rate: 1, Period: time.Hour, Burst: 100_000, Algorithm: algorithms.TokenBucket}},
		{"sliding_window", algorithms.Limit{Rate: 1_000_000, Period: time.Hour}},
	} {
		b.Run(l.name, func(b *testing.B) { keysInRedis(b, l.limit, many) })
		b.Run("memory/"+l.name, func(b *testing.B) { keysInMemory(b, l.limit, many) })
	}
}

const few = 10_000

// keyed is the check of a client among very many, an address of 10.0.0.0/8.
func keyed(limit algorithms.Limit, client int) algorithms.Check {
	var addr [4]byte
	binary.BigEndian.PutUint32(addr[:], 10<<24+uint32(client)) //nolint:gosec // below 2^24
	return algorithms.Check{Rule: "ip", Key: netip.AddrFrom4(addr).String(), Limit: limit}
}

// anybody is the subject that decides for one of n clients, any of them.
func anybody(l algorithms.Limiter, limit algorithms.Limit, n int) subject {
	return func() func(int) error {
		return func(int) error {
			d, err := l.Take(context.Background(), keyed(limit, rand.IntN(n))) //nolint:gosec // no secret
			if err == nil && (!d.Allowed || d.Results[0].Source == algorithms.SourceFallback) {
				err = fmt.Errorf("%+v", d.Results)
			}
			return err
		}
	}
}

func keysInRedis(b *testing.B, limit algorithms.Limit, many int) {
	s := start(b)
	g := &failmode.Guard{
		Limiter:   &algorithms.Redis{Client: s.ours, Namespace: "shop", Budget: patience},
		Instances: 1, Logger: new(log).logger(),
	}
	b.Cleanup(func() { _ = g.Close() })
	measure := func(name string, keys int) {
		for _, callers := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/callers=%d", name, callers), func(b *testing.B) {
				load{callers: callers, servers: s.all()}.measure(b, anybody(g, limit, keys))
			})
		}
	}
	empty := memoryOf(b, s.theirs)
	fill(b, s, limit, 0, few)
	measure("few", few)
	before := usageOf(b, s.theirs)
	fill(b, s, limit, few, many)
	cpu := usageOf(b, s.theirs).since(before).cpu
	full, keys := memoryOf(b, s.theirs), s.theirs.DBSize(context.Background()).Val()
	if keys < int64(many) || keys > int64(many)+10 {
		b.Fatalf("%d keys, want %d", keys, many)
	}
	d, err := g.Peek(context.Background(), keyed(limit, many-1))
	if err != nil || d.Results[0].Remaining != limit.Quota()-1 || d.Results[0].Source != algorithms.SourceRedis {
		b.Fatalf("a key that was made is not one: %+v, %v", d, err)
	}
	b.Run("size", func(b *testing.B) {
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(keys), "keys")
		b.ReportMetric((full-empty)/float64(keys), "bytes/key")
		b.ReportMetric(cpu*1e6/float64(many-few), "redis-cpu-µs/key")
	})
	measure("many", many)
}

// fill makes the keys of clients as a decision does: with the commands that one
// for another client was recorded to send.
func fill(b *testing.B, s server, limit algorithms.Limit, from, to int) {
	b.Helper()
	var sent recorder
	client := redis.NewClient(s.ours.Options())
	defer func() { _ = client.Close() }()
	template := keyed(limit, 1<<24-1)
	l := &algorithms.Redis{Client: client, Namespace: "shop", Budget: patience}
	ctx := context.Background()
	if _, err := l.Take(ctx, template); err != nil { // what follows needs no text of a script
		b.Fatal(err)
	}
	client.AddHook(&sent)
	if _, err := l.Take(ctx, template); err != nil {
		b.Fatal(err)
	}
	if len(sent.commands) != 1 || !strings.Contains(fmt.Sprint(sent.commands[0][3]), template.Key) {
		b.Fatalf("cannot repeat %q", sent.commands)
	}
	if err := l.Reset(ctx, template); err != nil {
		b.Fatal(err)
	}
	const workers, batch = 4, 500
	errs := make([]error, workers)
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for first := from + w*batch; first < to && errs[w] == nil; first += workers * batch {
				pipe := s.theirs.Pipeline()
				for i := first; i < min(first+batch, to); i++ {
					args := slices.Clone(sent.commands[0])
					args[3] = strings.Replace(args[3].(string), template.Key, keyed(limit, i).Key, 1)
					pipe.Do(ctx, args...)
				}
				_, errs[w] = pipe.Exec(ctx)
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
}

func memoryOf(b *testing.B, c *redis.Client) float64 {
	b.Helper()
	info, err := c.Info(context.Background(), "memory").Result()
	if err == nil {
		var used float64
		if used, err = infoField(info, "used_memory:"); err == nil {
			return used
		}
	}
	b.Fatal(err)
	return 0
}

func keysInMemory(b *testing.B, limit algorithms.Limit, many int) {
	m := &algorithms.Memory{MaxKeys: 2 * many}
	take := func(from, to int) {
		for i := from; i < to; i++ {
			if d, err := m.Take(context.Background(), keyed(limit, i)); err != nil || !d.Allowed {
				b.Fatalf("%+v, %v", d, err)
			}
		}
	}
	measure := func(name string, keys int) {
		b.Run(name+"/callers=1", func(b *testing.B) {
			load{callers: 1, timed: inProcess}.measure(b, anybody(m, limit, keys))
		})
	}
	empty := heap()
	take(0, few)
	measure("few", few)
	take(few, many)
	full := heap()
	b.Run("size", func(b *testing.B) {
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(many), "keys")
		b.ReportMetric((full-empty)/float64(many), "bytes/key")
	})
	measure("many", many)
}

func heap() float64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc)
}

// BenchmarkCapacity is what a decision costs the servers of a single Redis, and
// of a cluster, whose nodes are asked for each key by itself.
func BenchmarkCapacity(b *testing.B) {
	if os.Getenv("KEYS") == "" {
		b.Skip("make bench-keys runs it")
	}
	run := func(b *testing.B, l algorithms.Limiter, servers []*redis.Client) {
		for _, rules := range []int{1, 3} {
			s := func() func(int) error {
				return func(client int) error {
					d, err := l.Take(context.Background(), allChecks[client][:rules]...)
					if err == nil && !d.Allowed {
						err = fmt.Errorf("denied: %+v", d.Results)
					}
					return err
				}
			}
			warm(b, s)
			b.Run(fmt.Sprintf("rules=%d", rules), func(b *testing.B) {
				load{callers: 128, servers: servers}.measure(b, s)
			})
		}
	}
	b.Run("redis", func(b *testing.B) {
		s := start(b)
		run(b, &algorithms.Redis{Client: s.ours, Namespace: "bench", Budget: patience}, s.all())
	})
	b.Run("cluster", func(b *testing.B) {
		cluster := redistest.StartCluster(b)
		client := redis.NewClusterClient(algorithms.FailFast(&redis.ClusterOptions{
			Addrs: cluster.Addrs, DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience, PoolTimeout: patience,
		}))
		b.Cleanup(func() { _ = client.Close() })
		var masters []*redis.Client
		for _, m := range cluster.Masters {
			masters = append(masters, m.Client(b))
		}
		run(b, &algorithms.Redis{Client: client, Namespace: "bench", Budget: patience}, masters)
	})
}
