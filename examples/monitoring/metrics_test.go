package monitoring_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
	"github.com/seed75154129/ratelimit/middleware/metrics"
)

// named returns the metrics that a text names, without what a histogram adds.
func named(text string) map[string]bool {
	names := map[string]bool{}
	for _, name := range regexp.MustCompile(`ratelimit_[a-z_]+`).FindAllString(text, -1) {
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			name = strings.TrimSuffix(name, suffix)
		}
		names[name] = true
	}
	return names
}

// What the dashboard and the alerts name exists, and every metric that exists is in
// one of them or in docs/metrics.md.
func TestMetricsAreThoseOfTheMiddleware(t *testing.T) {
	guard := &failmode.Guard{Limiter: new(algorithms.Memory), Instances: 1}
	defer guard.Close()
	limit, err := ratelimit.New(ratelimit.Config{
		Limiter: guard, TierFor: func(*http.Request) string { return "" },
		Rules: []ratelimit.Rule{{
			Name: "queue", Key: keyfunc.IP, Ban: algorithms.Ban{After: 10, For: time.Hour}, Tiers: map[string][]algorithms.Limit{"pro": {algorithms.PerMinute(100)}},
			Limit: algorithms.Limit{Rate: 10, Period: time.Second, Burst: 3, Algorithm: algorithms.LeakyBucket},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	if err := metrics.Register(registry, limit); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	exists := map[string]bool{}
	shown, documented := named(read(t, "dashboard.json")+read(t, "alerts.yml")), named(read(t, "../../docs/metrics.md"))
	for _, f := range families {
		name := f.GetName()
		if exists[name] = true; !shown[name] && !documented[name] {
			t.Errorf("%s is neither on the dashboard nor in an alert nor in docs/metrics.md", name)
		}
	}
	for name := range shown {
		if !exists[name] {
			t.Errorf("%s is on the dashboard or in an alert, and no such metric exists", name)
		}
	}
}
