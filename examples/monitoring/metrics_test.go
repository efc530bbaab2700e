package monitoring_test

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

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

// moving notices which metrics of a registry change.
type moving struct {
	registry *prometheus.Registry
	first    map[string]float64 // by metric, the sum of its series at first
	moved    map[string]bool
}

func (m *moving) look(t *testing.T) {
	t.Helper()
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	now := map[string]float64{}
	for _, f := range families {
		now[f.GetName()] = 0
		for _, s := range f.GetMetric() {
			now[f.GetName()] += s.GetCounter().GetValue() + s.GetGauge().GetValue() + float64(s.GetHistogram().GetSampleCount())
		}
	}
	if m.first == nil {
		m.first, m.moved = maps.Clone(now), map[string]bool{}
	}
	for name, value := range now {
		if value != m.first[name] {
			m.moved[name] = true
		}
	}
}

// until looks until a metric has moved.
func (m *moving) until(t *testing.T, name string, meanwhile func()) {
	t.Helper()
	begin := time.Now()
	for range time.Tick(5 * time.Millisecond) {
		if m.look(t); m.moved[name] {
			return
		}
		if time.Since(begin) > 20*time.Second {
			t.Fatalf("%s has not moved in 20 s", name)
		}
		meanwhile()
	}
}

// What the dashboard and the alerts name exists and moves when it should, and
// every metric that exists is in one of them or in docs/metrics.md.
func TestMetricsAreThoseOfTheMiddleware(t *testing.T) {
	m := &moving{registry: prometheus.NewRegistry()}
	script(t, m)

	shown := named(read(t, "dashboard.json") + read(t, "alerts.yml"))
	documented := named(read(t, "../../docs/metrics.md"))
	for name := range shown {
		if _, ok := m.first[name]; !ok {
			t.Errorf("%s is on the dashboard or in an alert, and no such metric exists", name)
		}
	}
	for name := range m.first {
		if !m.moved[name] {
			t.Errorf("%s did not move while all happened that should move it", name)
		}
		if !shown[name] && !documented[name] {
			t.Errorf("%s is neither on the dashboard nor in an alert nor in docs/metrics.md", name)
		}
	}
}

// script lets everything happen that a metric is about.
func script(t *testing.T, m *moving) {
	redisServer := miniredis.RunT(t)
	client := redis.NewClient(algorithms.FailFast(&redis.Options{Addr: redisServer.Addr()}))
	t.Cleanup(func() { _ = client.Close() })
	silent := slog.New(slog.DiscardHandler)
	guard := func(instances int) *failmode.Guard {
		g := &failmode.Guard{
			Limiter:   &algorithms.Redis{Client: client, Namespace: "monitoring"},
			Instances: instances,
			Logger:    silent,
		}
		t.Cleanup(func() { _ = g.Close() })
		return g
	}
	user := keyfunc.Header("X-User")
	day := func(rate int64) algorithms.Limit {
		return algorithms.Limit{Rate: rate, Period: 24 * time.Hour, Algorithm: algorithms.FixedWindow}
	}
	rules := []ratelimit.Rule{
		{Name: "user", Match: []string{"/{$}"}, Key: keyfunc.Optional(user), Limit: day(5)},
		{Name: "brief", Match: []string{"/brief"}, Key: user,
			Limit: algorithms.Limit{Rate: 1000, Period: time.Second, Burst: 1, Algorithm: algorithms.GCRA}},
		{Name: "queue", Match: []string{"/queue"}, Key: keyfunc.Everyone, Fail: failmode.Open,
			Limit: algorithms.Limit{Rate: 10, Period: time.Second, Burst: 3, Algorithm: algorithms.LeakyBucket}},
		{Name: "broken", Match: []string{"/broken"}, Limit: day(5), Fail: failmode.Closed,
			Key: keyfunc.Func(func(*http.Request) (string, error) { return "", errors.New("no such table") })},
	}
	config := ratelimit.Config{Limiter: guard(1), Rules: rules, Logger: silent}
	limit, err := ratelimit.New(config)
	if err != nil {
		t.Fatal(err)
	}
	config.Limiter, config.Rules = &algorithms.Memory{MaxKeys: 64}, rules[:2]
	small, err := ratelimit.New(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := metrics.Register(m.registry, limit, small); err != nil {
		t.Fatal(err)
	}
	handlers := map[*ratelimit.Middleware]http.Handler{limit: limit.Handler(http.NotFoundHandler()), small: small.Handler(http.NotFoundHandler())}
	sendTo := func(limit *ratelimit.Middleware, path, user string) {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		if user != "" {
			r.Header.Set("X-User", user)
		}
		handlers[limit].ServeHTTP(httptest.NewRecorder(), r)
	}
	send := func(path, user string) { sendTo(limit, path, user) }
	n := 0
	somebody := func() string { n++; return fmt.Sprint("user", n) }
	m.look(t)

	for range 7 { // the last two are denied
		send("/", "alice")
	}
	send("/", "")
	send("/broken", "")
	for range 1000 {
		sendTo(small, "/brief", somebody()) // most are like never seen before all have come
	}
	m.look(t)

	var waiting sync.WaitGroup
	for range 3 {
		waiting.Go(func() { send("/queue", "") })
	}
	m.until(t, "ratelimit_queue_waiting", func() {})
	waiting.Wait()

	if err := limit.SetRules(rules[:3]); err != nil {
		t.Fatal(err)
	}
	if limit.SetRules(rules[:0]) == nil && limit.SetRules([]ratelimit.Rule{{}}) == nil {
		t.Fatal("a rule without anything was not refused")
	}
	config.Limiter, config.Rules = guard(3), rules[:3]
	third, err := ratelimit.New(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := metrics.Register(m.registry, third); err != nil {
		t.Fatal(err)
	}
	m.look(t)

	export := algorithms.Check{Rule: "exports", Limit: algorithms.Limit{Rate: 1, Period: time.Second, Algorithm: algorithms.InFlight}}
	running, err := limit.Limiter().Take(t.Context(), export)
	if err != nil || !running.Allowed {
		t.Fatalf("%+v, %v", running, err)
	}
	redisServer.Close()
	m.until(t, "ratelimit_renewals_failed_total", func() {})
	if err := algorithms.Refund(t.Context(), limit.Limiter(), running); err != nil {
		t.Fatal(err)
	}
	m.until(t, "ratelimit_releases_dropped_total", func() {})
	m.until(t, "ratelimit_breaker_open_shards", func() { send("/queue", "") })
	for range 1000 {
		sendTo(small, "/", somebody()) // more than there is room for
	}
	m.look(t)
	if err := redisServer.Restart(); err != nil {
		t.Fatal(err)
	}
	m.until(t, "ratelimit_breaker_transitions_total", func() {})
}
