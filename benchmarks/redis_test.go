package benchmarks

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/internal/redistest"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// patience is a budget that no decision of a busy machine outlasts: what ran
// out of it would be decided without Redis, in no time.
const patience = 5 * time.Second

// BenchmarkRedis is a request with the limits in Redis, beside a bare GET and
// the same three limits with redis_rate. What is compared runs next to each
// other, on one server.
func BenchmarkRedis(b *testing.B) {
	server := redistest.Start(b)
	client := redis.NewClient(algorithms.FailFast(server.Options())) // as the README says
	b.Cleanup(func() { _ = client.Close() })
	defaults := redis.NewClient(&redis.Options{Addr: server.Addr})
	b.Cleanup(func() { _ = defaults.Close() })

	var outages bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&outages, nil))
	limited := func(namespace string, c *redis.Client) subject {
		l := &failmode.Guard{Limiter: &algorithms.Redis{Client: c, Namespace: namespace, Budget: patience}, Logger: logger}
		b.Cleanup(func() { _ = l.Close() })
		return serving(handler(b, ratelimit.Config{Limiter: l, Rules: standard(), Logger: logger}), http.StatusNoContent)
	}
	subjects := []struct {
		name string
		subject
	}{
		{"get", getting(client)},
		{"handler", limited("bench", client)},
		{"default_client", limited("bench-default", defaults)},
		{"take", taking(&algorithms.Redis{Client: client, Namespace: "bench-take", Budget: patience})},
		{"redis_rate", allowing(redis_rate.NewLimiter(client))},
	}
	for _, s := range subjects {
		warm(b, s.subject)
	}
	for _, callers := range callerCounts {
		for _, s := range subjects {
			if s.name == "take" && callers.n > 1 {
				continue
			}
			b.Run(s.name+"/"+callers.name, func(b *testing.B) { measure(b, callers.n, client, s.subject) })
		}
	}
	if outages.Len() > 0 {
		b.Fatalf("some was decided without Redis:\n%s", outages.String())
	}
}

// getting is the subject that does the least a round trip can do.
func getting(c *redis.Client) subject {
	return func() func(int) error {
		return func(client int) error {
			err := c.Get(context.Background(), users[client]).Err()
			if err == redis.Nil { //nolint:errorlint // never wrapped
				return c.Set(context.Background(), users[client], "1", 0).Err()
			}
			return err
		}
	}
}

// allowing is the subject that asks redis_rate for each limit of the standard
// stack. Its keys are ready; for ours the middleware resolves them.
func allowing(l *redis_rate.Limiter) subject {
	type check struct {
		key   string
		limit redis_rate.Limit
	}
	var all [clients][]check
	for client := range all {
		for _, c := range allChecks[client] {
			limit := redis_rate.Limit{Rate: int(c.Limit.Rate), Burst: int(c.Limit.Quota()), Period: c.Limit.Period}
			all[client] = append(all[client], check{c.Rule + ":" + c.Key, limit})
		}
	}
	return func() func(int) error {
		return func(client int) error {
			for _, c := range all[client] {
				res, err := l.Allow(context.Background(), c.key, c.limit)
				if err != nil {
					return err
				}
				if res.Allowed == 0 {
					return fmt.Errorf("denied: %s", c.key)
				}
			}
			return nil
		}
	}
}
