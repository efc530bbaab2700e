// 9. Metrics and the operators' handler on an admin port; reset, ban and unban one client.
package p09

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
	"github.com/seed75154129/ratelimit/middleware/metrics"
)

func admin(guard *failmode.Guard) (limit *ratelimit.Middleware, handler http.Handler, err error) {
	limit, err = ratelimit.New(ratelimit.Config{
		Limiter: guard, LogKeys: true,
		Rules: []ratelimit.Rule{{Name: "per-ip", Key: keyfunc.IP, Limit: algorithms.PerMinute(200)}},
	})
	if err != nil {
		return nil, nil, err
	}
	registry := prometheus.NewRegistry()
	if err := metrics.Register(registry, limit); err != nil {
		return nil, nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.Handle("/ratelimit/", http.StripPrefix("/ratelimit", limit.Admin())) // rules, top denied, peek, reset, ban, unban
	return limit, mux, nil                                                   // http.ListenAndServe("127.0.0.1:9090", handler)
}

func byHand(ctx context.Context, limit *ratelimit.Middleware, guard *failmode.Guard) error {
	client, err := limit.Checks("per-ip", "2001:db8::1") // counted as 2001:db8::/64
	if err != nil {
		return err
	}
	if _, err := guard.Peek(ctx, client...); err != nil {
		return err
	}
	if err := guard.Reset(ctx, client...); err != nil {
		return err
	}
	if err := guard.Ban(ctx, 24*time.Hour, client...); err != nil {
		return err
	}
	return guard.Ban(ctx, 0, client...) // lifted; counts stay
}
