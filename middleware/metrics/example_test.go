package metrics_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
	"github.com/seed75154129/ratelimit/middleware/metrics"
)

// What a middleware counts, for Prometheus to scrape.
func ExampleRegister() {
	limit, err := ratelimit.New(ratelimit.Config{
		Limiter: new(algorithms.Memory),
		Rules:   []ratelimit.Rule{{Name: "per-ip", Key: keyfunc.IP, Limit: algorithms.PerMinute(200)}},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := metrics.Register(prometheus.DefaultRegisterer, limit); err != nil {
		log.Fatal(err)
	}

	scrape := httptest.NewRecorder()
	promhttp.Handler().ServeHTTP(scrape, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	fmt.Println(scrape.Code)
	// Output:
	// 200
}
