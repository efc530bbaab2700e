package middleware_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/algorithms/limitertest"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// A Middleware starts nothing, and what a Guard starts ends with its Close. A
// goroutine that is left over never lets the bubble end.
func TestNothingIsLeftRunning(t *testing.T) {
	for name, away := range map[string]bool{"Redis is there": false, "Redis is away": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, server := limitertest.RedisServer(t)
				guard := &failmode.Guard{Limiter: &algorithms.Redis{Client: client, Namespace: "leak"}, Logger: slog.New(slog.DiscardHandler)}
				closed, queue := perHour("closed", 100, "/closed"), perHour("queue", 100, "/queue")
				closed.Fail = failmode.Closed
				queue.Limit = algorithms.Limit{Rate: 1, Period: time.Second, Burst: 5, Algorithm: algorithms.LeakyBucket}
				m := measured(t, prometheus.NewRegistry(), ratelimit.Config{Limiter: guard, Rules: []ratelimit.Rule{
					{Name: "each", Key: keyfunc.IP, Limit: algorithms.PerHour(100)}, closed, queue,
				}})
				h := m.Handler(ok)
				times(3, h, "GET /closed")
				if away {
					server.SetError("LOADING Redis is loading the dataset in memory")
				}
				times(20, h, "GET /closed")
				synctest.Wait() // for the probe
				if n := openShards(guard); (n > 0) != away {
					t.Errorf("%d circuits are open", n)
				}
				for range 4 { // the last is given up before its turn
					ctx, cancel := context.WithCancel(t.Context())
					time.AfterFunc(1500*time.Millisecond, cancel)
					go h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/queue", nil).WithContext(ctx))
				}
				time.Sleep(10 * time.Second)
				if err := guard.Close(); err != nil {
					t.Error(err)
				}
				times(3, h, "GET /closed") // decisions still work, and begin nothing
			})
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
