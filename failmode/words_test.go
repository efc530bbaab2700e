package failmode_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/internal/redistest"
)

// A server that cannot decide for any key is unavailable, in whatever words it says so.
func TestAnswersInUnknownWords(t *testing.T) {
	for _, words := range []string{
		"ERR Connection refused", // a proxy whose server is gone
		"ERR This Redis command is not allowed from script script: 53aa7d29, on @user_script:13.", // a service that does not run the scripts as they are
		"TEAPOT short and stout", // nobody has heard of it
	} {
		for kind, limiter := range map[string]func(*redis.Client) *algorithms.Redis{
			"client":  func(c *redis.Client) *algorithms.Redis { return &algorithms.Redis{Client: c} },
			"sharded": func(c *redis.Client) *algorithms.Redis { return &algorithms.Redis{Client: c, Sharded: true} },
			"wrapped": func(c *redis.Client) *algorithms.Redis {
				return &algorithms.Redis{Client: struct{ algorithms.Client }{c}}
			},
		} {
			t.Run(words+", "+kind, func(t *testing.T) {
				t.Parallel()
				addr, spoil := answering(words)(t)
				client := redis.NewClient(algorithms.FailFast(&redis.Options{Addr: addr}))
				defer client.Close()
				r := limiter(client)
				r.Namespace, r.Budget = "test", 10*time.Second
				log := new(strings.Builder)
				g := &failmode.Guard{Limiter: r, Instances: 1, Logger: slog.New(slog.NewTextHandler(log, nil))}
				defer g.Close()
				spoil()
				n := 0
				until(t, "the circuit is open", func() bool {
					n++
					d, err := g.Take(t.Context(), algorithms.Check{Rule: "login", Key: fmt.Sprint(n), Limit: algorithms.PerHour(5), Fail: failmode.Closed})
					if err != nil {
						t.Fatal(err)
					}
					return errors.Is(d.Results[0].Err, failmode.ErrOpen)
				})
				d, err := g.Take(t.Context(), algorithms.Check{Rule: "search", Key: "k", Limit: algorithms.PerHour(5), Fail: failmode.Open})
				if err != nil || d.Results[0].Source != algorithms.SourceFailOpen {
					t.Errorf("a rule that fails open: %+v, %v", d, err)
				}
				if err := g.Close(); err != nil || !strings.Contains(log.String(), `msg="ratelimit: circuit open"`) || !strings.Contains(log.String(), "class=answer") {
					t.Errorf("%v; logged:\n%s", err, log)
				}
			})
		}
	}
}

// One key that holds what another program has written opens no circuit, however often it
// is asked for.
func TestAForeignKeyOpensNoCircuit(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client(t)
	key := "test:{stolen}:r"
	for name, steal := range map[string]func(context.Context) error{
		"a list": func(ctx context.Context) error { return client.RPush(ctx, key, 1).Err() },
		"a hash": func(ctx context.Context) error { return client.HSet(ctx, key, "a", 1).Err() },
		"a text": func(ctx context.Context) error { return client.Set(ctx, key, "hello", 0).Err() },
	} {
		t.Run(name, func(t *testing.T) {
			g := guardOver(t, &algorithms.Redis{Client: client})
			stolen := algorithms.Check{Rule: "r", Key: "stolen", Limit: algorithms.PerHour(5)}
			taken := func(c algorithms.Check) algorithms.Result {
				t.Helper()
				d, err := g.Take(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				return d.Results[0]
			}
			taken(stolen)
			keys, err := client.Keys(t.Context(), "test:*stolen*").Result()
			if err != nil || len(keys) != 1 {
				t.Fatalf("keys %q, %v", keys, err)
			}
			key = keys[0]
			if err := client.Del(t.Context(), key).Err(); err != nil {
				t.Fatal(err)
			}
			if err := steal(t.Context()); err != nil {
				t.Fatal(err)
			}
			for begun := time.Now(); time.Since(begun) < 500*time.Millisecond; {
				if r := taken(stolen); r.Source == algorithms.SourceRedis {
					t.Fatalf("%+v", r)
				}
			}
			other := stolen
			other.Key = "other"
			if r := taken(other); r.Source != algorithms.SourceRedis || openShards(g) > 0 {
				t.Errorf("another key: %+v; %d circuits are open", r, openShards(g))
			}
			if err := client.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// openShards returns how many circuits are open.
func openShards(g *failmode.Guard) (n int) {
	for m := range g.Metrics() {
		if m.Name == "ratelimit_breaker_open_shards" {
			n = int(m.Value)
		}
	}
	return n
}
