package middleware_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
	"github.com/seed75154129/ratelimit/middleware/shed"
)

func TestUsersAreNoSeries(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := measured(t, registry, ratelimit.Config{Limiter: &algorithms.Memory{MaxKeys: 1000}, DenialLogRate: -1, Rules: []ratelimit.Rule{
		{Name: "user", Key: keyfunc.Header("User"), Limit: algorithms.PerHour(1)},
		{Name: "skips", Key: keyfunc.Optional(keyfunc.Header("None")), Limit: algorithms.PerHour(1)},
	}})
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	take := func(user string) {
		r.Header.Set("User", user)
		if _, err := m.Take(r); err != nil {
			t.Fatal(err)
		}
	}
	take("alice")
	take("alice")
	before := len(gather(t, registry))
	for i := range 20_000 {
		take(fmt.Sprint("user-", i))
	}
	if after := len(gather(t, registry)); after != before {
		t.Errorf("%d series, then %d", before, after)
	}
	if top := m.TopDenied(1000); len(top) > 512 {
		t.Errorf("%d keys are held", len(top))
	}
}

// A label that the registerer adds keeps two middlewares apart.
func TestMiddlewaresAreToldApartByLabels(t *testing.T) {
	registry := prometheus.NewRegistry()
	for i, name := range []string{"a", "b"} {
		h := measured(t, prometheus.WrapRegistererWith(prometheus.Labels{"service": name}, registry),
			ratelimit.Config{Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{perHour("r", 9)}}).Handler(ok)
		times(i+1, h, "GET /")
	}
	wantSamples(t, registry, map[string]float64{
		"decisions_total sliding_window allowed r a memory": 1, "decisions_total sliding_window allowed r b memory": 2,
	})
}

func TestMetricsAreCleanAndDocumented(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	rule := perHour("r", 1)
	rule.Tiers = map[string][]algorithms.Limit{"pro": {algorithms.PerHour(2), algorithms.PerSecond(2)}}
	rule.Ban = ratelimit.Ban{After: 1, Within: time.Hour, For: time.Hour}
	atOnce := perHour("at-once", 1)
	atOnce.Limit = algorithms.MaxInFlight(1)
	m := measured(t, registry, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{rule, atOnce}})
	register(t, registry, new(shed.Shedder))
	_ = within(t, m, func(ctx context.Context, _ http.ResponseWriter) error {
		_ = ratelimit.Add(ctx, "r", 2)
		return nil
	})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	var exported []string
	for _, f := range families {
		exported = append(exported, f.GetName())
	}
	doc, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, match := range regexp.MustCompile("(?m)^\\| `(ratelimit_[a-z_]+)").FindAllSubmatch(doc, -1) {
		documented = append(documented, string(match[1]))
	}
	slices.Sort(exported)
	slices.Sort(documented)
	if !slices.Equal(exported, documented) {
		t.Errorf("exported:\n%s\ndocumented:\n%s", strings.Join(exported, "\n"), strings.Join(documented, "\n"))
	}
}

// Operators find each word for who decided in one table.
func TestSourcesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n| source |")
	table, _, _ = strings.Cut(table, "\n\n")
	var documented []string
	for row := range strings.Lines(table) {
		first, _, _ := strings.Cut(strings.TrimPrefix(row, "| "), " |")
		for _, word := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(first, -1) {
			documented = append(documented, word[1])
		}
	}
	var sources []string
	for s := range algorithms.SourceOther + 1 {
		sources = append(sources, s.String())
	}
	slices.Sort(sources)
	if slices.Sort(documented); !slices.Equal(sources, documented) {
		t.Errorf("%q in the log and metrics, %q documented", sources, documented)
	}
}

func TestLimitersAreLookedThrough(t *testing.T) {
	client := redis.NewClient(algorithms.FailFast(&redis.Options{Addr: "127.0.0.1:1"})) // nobody is there
	t.Cleanup(func() { _ = client.Close() })
	limiter := audit{guard(t, audit{&algorithms.Redis{Client: client, Namespace: "test"}}, 5)}
	registry := prometheus.NewRegistry()
	m, _ := logged(t, ratelimit.Config{Limiter: limiter, Rules: []ratelimit.Rule{perHour("r", 100)}})
	register(t, registry, m)
	wantSamples(t, registry, map[string]float64{"decisions_total sliding_window allowed r redis": 0, "decisions_total sliding_window denied r fallback": 0})
	times(3, m.Handler(ok), "GET /")
	wantDecisions(t, registry, map[string]float64{"sliding_window allowed r fallback": 3})
	wantSamples(t, registry, map[string]float64{
		"breaker_shards": 1, "instances": 5, "local_keys": 1,
	})
}
