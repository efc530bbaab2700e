package algorithms_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/algorithms/limitertest"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/internal/script"
	"github.com/seed75154129/ratelimit/internal/step"
)

// A level is what histories are run on.
type level struct {
	name   string
	kind   kind
	rounds int // of 100 histories
	start  func(t *testing.T) func(history) error
}

const roomy = time.Minute

// TestHistories runs random histories on each level. HISTORIES multiplies them.
func TestHistories(t *testing.T) {
	times := 1
	if s := os.Getenv("HISTORIES"); s != "" {
		if _, err := fmt.Sscan(s, &times); err != nil {
			t.Fatalf("HISTORIES=%q is not a number", s)
		}
	}
	for _, l := range []level{
		{"exact", kind{forward: true, steady: true, rated: true}, 50, alone(exactly)},
		{"beside another limit", kind{forward: true, rated: true}, 50, alone(beside)},
		{"miniredis", kind{looks: true, octal: true}, 2, on(algorithms.MiniBackend)},
		{"redis", kind{looks: true}, 20, on(algorithms.RealBackend)},
		{"miniredis, jointly", kind{looks: true, octal: true}, 1, jointly(algorithms.MiniBackend)},
		{"redis, jointly", kind{looks: true}, 10, jointly(algorithms.RealBackend)},
		{"cluster", kind{forward: true, steady: true, looks: true}, 4, on(algorithms.ClusterBackend)},
		{"guard", kind{forward: true, steady: true, rated: true, octal: true, most: day}, 5, guarded},
		{"guards in an outage", kind{forward: true, steady: true, rated: true, octal: true, most: 10 * second}, 5, inOutage},
	} {
		t.Run(l.name, func(t *testing.T) {
			run := l.start(t)
			for range l.rounds * times {
				rapid.Check(t, func(t *rapid.T) {
					if err := run(l.kind.history(t)); err != nil {
						t.Fatal(err)
					}
				})
			}
		})
	}
}

// alone is a level that starts nothing.
func alone(run func(history) error) func(*testing.T) func(history) error {
	return func(*testing.T) func(history) error { return run }
}

// on runs histories on a store and a Memory.
func on(start func(*testing.T) algorithms.Backend) func(*testing.T) func(history) error {
	return func(t *testing.T) func(history) error { return stored(t, start(t)).run }
}

// jointly has batches run together, where that can be, and each request between two others.
func jointly(start func(*testing.T) algorithms.Backend) func(*testing.T) func(history) error {
	return func(t *testing.T) func(history) error {
		b := start(t)
		s := stored(t, b)
		s.limiter, s.together = algorithms.Jointly{Redis: b.Redis}, b.Together
		t.Cleanup(func() {
			known, err := b.Client.ScriptExists(context.Background(), script.Joint.SHA()).Result()
			if !slices.Contains(known, true) {
				t.Errorf("the joint script was not run: %v", err)
			}
		})
		return s.run
	}
}

// stored is a backend, of which each history begins with an empty one.
func stored(t *testing.T, b algorithms.Backend) *subject {
	ctx, here := context.Background(), new(int64)
	b.SetClock(func() time.Time { return time.UnixMicro(*here) })
	_, cluster := b.Client.(*redis.ClusterClient)
	s := &subject{limiter: b.Redis, setTime: b.SetTime, here: here, store: &textStore{
		calm:  cluster,
		flush: b.Flush,
		ttl:   b.TTL,
		put: func(key, value string) {
			stored := b.Client.Get(ctx, key).Val()
			b.Client.Del(ctx, key)
			switch value {
			case "list", "list of two":
				b.Client.RPush(ctx, key, strings.Fields(value))
			case "hash":
				b.Client.HSet(ctx, key, "f", "1")
			case "longer":
				b.Client.Set(ctx, key, stored+strings.Repeat("0", 64), 0)
			case "spoiled":
				b.Client.Set(ctx, key, stored[:min(3, len(stored))]+"z"+stored[min(4, len(stored)):], 0)
			default:
				b.Client.Set(ctx, key, value, 0)
			}
		},
		dump: func(key string) string { return b.Client.Dump(ctx, key).Val() },
	}}
	t.Cleanup(func() { t.Logf("%d results, %d of them of denied requests", s.results, s.denied) })
	return s
}

// guarded is a level of a Guard whose Redis is well: it decides as a Memory would, also
// what it does not ask the store about. Of a count, each check has the same limit: a denial by
// another one may be a second old.
func guarded(t *testing.T) func(history) error {
	return func(h history) (err error) {
		synctest.Test(t, func(t *testing.T) {
			sleepUntil(max(h.start, h.earliest))
			g := guardOf(limitertest.Redis(t), 1)
			defer g.Close()
			err = (&subject{limiter: g, setTime: sleepUntil, guarded: true}).run(h)
		})
		return err
	}
}

func sleepUntil(us int64) { time.Sleep(time.Until(time.UnixMicro(us))) }

func guardOf(client redis.UniversalClient, instances int) *failmode.Guard {
	return &failmode.Guard{
		Limiter:   &algorithms.Redis{Client: client, Namespace: "test", Budget: roomy},
		Instances: instances, Logger: slog.New(slog.DiscardHandler),
	}
}

// inOutage is a level of three Guards whose Redis is away in the middle third of a history.
// Together they admit at most the limit, and once more for each of them. A Guard that counts
// by itself denies nothing as long as all have used no more than its share. A second after the outage, Redis decides again.
func inOutage(t *testing.T) func(history) error {
	const processes = 3
	return func(h history) (err error) {
		synctest.Test(t, func(t *testing.T) {
			sleepUntil(max(h.start, h.earliest))
			client, server := limitertest.RedisServer(t)
			var guards [processes]*failmode.Guard
			for i := range guards {
				guards[i] = guardOf(client, processes)
				defer guards[i].Close()
			}
			models := map[algorithms.Check][]use{}
			for i, o := range h.ops {
				time.Sleep(step.Micros(min(max(o.move, 0), h.most)))
				if i == len(h.ops)/3 {
					server.SetError("LOADING Redis is loading the dataset in memory")
				}
				if i == len(h.ops)*2/3 {
					server.SetError("")
					time.Sleep(time.Second)
				}
				d, failed := guards[i%processes].Take(t.Context(), o.checks...)
				if failed != nil {
					err = failed
					return
				}
				for j, r := range d.Results {
					c, now := named(o.checks[j]), r.At.UnixMicro()
					cost, used := max(r.Check.Cost, 1), int64(0)
					for _, u := range models[c] {
						used += u.units
					}
					if share := max(c.Limit.Quota()/processes, cost); r.Source == algorithms.SourceFallback && !r.HasRoom && used+cost <= min(share, c.Limit.Quota()) &&
						c.Limit.Algorithm != algorithms.LeakyBucket { // which keeps slots of requests that were denied elsewhere
						err = fmt.Errorf("step %d: denied with %d used of a share of %d: %s", i, used, share, seen(r))
						return
					}
					if r.Charged > 0 {
						models[c] = append(models[c], use{at: now, units: r.Charged})
					}
				}
			}
			for c, uses := range models {
				whole := exactOf(c.Limit)
				for _, u := range uses {
					whole.charge(u.at, u.units)
				}
				for i := range uses {
					var units int64
					for _, last := range uses[i:] {
						if units += last.units; c.Limit.Rate < 1_000_000 && last.at-uses[i].at < day && units > (1+processes)*whole.promise(uses[i].at, last.at-uses[i].at) {
							err = fmt.Errorf("%+v: %d units from %d to %d", c, units, uses[i].at, last.at)
						}
					}
				}
			}
			for _, g := range guards {
				d, failed := g.Take(t.Context(), algorithms.Check{Rule: "afterwards", Limit: algorithms.PerMinute(100)})
				if failed != nil || d.Results[0].Source != algorithms.SourceRedis {
					err = fmt.Errorf("afterwards: %+v, %w", d, failed)
				}
			}
		})
		return err
	}
}
