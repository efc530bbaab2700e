package docs

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit"
	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/middleware/admin"
)

func startUp(ctx context.Context, rules []ratelimit.Rule, serve func(http.Handler) error, mux *http.ServeMux) error {
	client := redis.NewClient(algorithms.FailFast(&redis.Options{Addr: "redis:6379"}))
	defer client.Close()
	guard := &failmode.Guard{Limiter: &algorithms.Redis{Client: client, Namespace: "shop"}}
	defer guard.Close()
	if err := guard.Warm(ctx); err != nil {
		slog.Warn("Redis is not ready", "error", err) // the service starts all the same
	}
	limit, err := ratelimit.New(ratelimit.Config{Limiter: guard, Rules: rules})
	if err != nil {
		return err
	}
	return serve(limit.Handler(mux))
}

func operators(limit *ratelimit.Middleware, errs chan<- error) {
	metrics, private := http.NewServeMux(), http.NewServeMux()
	metrics.Handle("GET /metrics", promhttp.Handler())
	go func() { errs <- http.ListenAndServe(":9090", metrics) }() // a port for Prometheus, not for clients
	private.Handle("/ratelimit/", admin.Handler(limit))
	go func() { errs <- http.ListenAndServe("127.0.0.1:8081", private) }()
}

func clients(addrs []string) []algorithms.Client {
	return []algorithms.Client{
		redis.NewClient(algorithms.FailFast(&redis.Options{Addr: "redis:6379"})),
		redis.NewClusterClient(algorithms.FailFast(&redis.ClusterOptions{Addrs: addrs})),
		redis.NewFailoverClient(algorithms.FailFast(&redis.FailoverOptions{MasterName: "main", SentinelAddrs: addrs})),
	}
}
