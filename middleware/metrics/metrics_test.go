package metrics_test

import (
	"errors"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
	"github.com/seed75154129/ratelimit/middleware"
	"github.com/seed75154129/ratelimit/middleware/metrics"
	"github.com/seed75154129/ratelimit/middleware/shed"
)

func newLimit(t testing.TB, l algorithms.Limiter, rules ...string) *middleware.Middleware {
	t.Helper()
	m, err := middleware.New(middleware.Config{Limiter: l, Logger: slog.New(slog.DiscardHandler), Rules: named(rules...)})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func named(names ...string) (rules []middleware.Rule) {
	for _, name := range names {
		rules = append(rules, middleware.Rule{Name: name, Key: keyfunc.IP, Limit: algorithms.PerHour(1_000_000)})
	}
	return rules
}

func guarding(t testing.TB, l algorithms.Limiter) *failmode.Guard {
	g := &failmode.Guard{Limiter: l, Instances: 3, Logger: slog.New(slog.DiscardHandler)}
	t.Cleanup(func() { _ = g.Close() })
	return g
}

func take(t testing.TB, m *middleware.Middleware, times int) {
	t.Helper()
	for range times {
		if _, err := m.Take(httptest.NewRequest(http.MethodGet, "/", nil)); err != nil {
			t.Fatal(err)
		}
	}
}

func register(t testing.TB, r prometheus.Registerer, sources ...metrics.Source) {
	t.Helper()
	if err := metrics.Register(r, sources...); err != nil {
		t.Fatal(err)
	}
}

// want checks samples without a histogram, by name and the values of their labels.
func want(t testing.TB, r prometheus.Gatherer, samples map[string]float64) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var name strings.Builder
			name.WriteString(strings.TrimPrefix(f.GetName(), "ratelimit_"))
			for _, l := range m.GetLabel() {
				name.WriteString(" " + l.GetValue())
			}
			got[name.String()] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	for name, n := range samples {
		if is, ok := got[name]; is != n || !ok {
			t.Errorf("%s is %v (there: %v), want %v", name, is, ok, n)
		}
	}
}

func TestNothingIsRegisteredByMistake(t *testing.T) {
	limit := newLimit(t, new(algorithms.Memory), "r")
	taken := prometheus.NewRegistry()
	taken.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "ratelimit_rules", Help: "Another's."}))
	var refused *middleware.Middleware // of a New whose error was not looked at
	for name, c := range map[string]struct {
		registerer prometheus.Registerer
		source     metrics.Source
		want       string
	}{
		"a name that is taken":     {taken, limit, "metrics: registerer: "},
		"a label that is taken":    {prometheus.WrapRegistererWith(prometheus.Labels{"rule": "x"}, prometheus.NewRegistry()), limit, "metrics: registerer: "},
		"no registerer":            {nil, limit, "metrics: the registerer is nil"},
		"a middleware that is nil": {prometheus.NewRegistry(), refused, "metrics: sources[0] must be a pointer that is not nil"},
	} {
		if err := metrics.Register(c.registerer, c.source); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What was counted before is there, and a part that several bring counts once.
func TestSourcesAreAskedOnce(t *testing.T) {
	registry, guard := prometheus.NewRegistry(), guarding(t, new(algorithms.Memory))
	one, two := newLimit(t, guard, "r"), newLimit(t, guard, "r")
	take(t, one, 3)
	take(t, two, 4)
	register(t, registry, one, one, guard)
	register(t, registry, guard, two)
	register(t, registry, one)
	for range 2 { // a scrape changes nothing
		want(t, registry, map[string]float64{
			"decisions_total sliding_window allowed r memory": 7, "decision_duration_seconds": 7, "near_limit_total r": 0, "units_total charged r": 7,
			"store_duration_seconds": 7, "breaker_shards": 1, "breaker_transitions_total open": 0, "instances": 3, "rules": 2,
			"local_keys": 2, // the Guard's own, and the store's
		})
	}
	alone := prometheus.NewRegistry()
	register(t, alone, guard)
	want(t, alone, map[string]float64{"store_duration_seconds": 7, "instances": 3})
}

// A Shedder that is registered twice counts once.
func TestAShedderIsCounted(t *testing.T) {
	registry, shedder := prometheus.NewRegistry(), &shed.Shedder{Min: 7, Max: 7}
	register(t, registry, shedder)
	register(t, registry, shedder)
	want(t, registry, map[string]float64{
		"shed_limit": 7, "shed_working": 0, "shed_waiting": 0, "shed_parked": 0, "shed_wait_seconds": 0, "shed_total low queue_full": 0, "shed_total critical waited": 0,
	})
}

// A removed rule leaves no series behind; until the last Middleware has removed it, what
// the others have counted.
func TestARemovedRuleLeavesNoSeries(t *testing.T) {
	registry := prometheus.NewRegistry()
	one, two := newLimit(t, new(algorithms.Memory), "r", "s"), newLimit(t, new(algorithms.Memory), "r", "s")
	register(t, registry, one, two)
	take(t, one, 100)
	take(t, two, 10)
	const r = "decisions_total sliding_window allowed r memory"
	want(t, registry, map[string]float64{r: 110})
	for _, m := range []*middleware.Middleware{one, two} {
		if err := m.SetRules(named("s")); err != nil {
			t.Fatal(err)
		}
		if m == one {
			want(t, registry, map[string]float64{r: 10})
		}
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "rule" && l.GetValue() == "r" {
					t.Errorf("%s is still there: %v", f.GetName(), m)
				}
			}
		}
	}
}

// own is a user's source.
type own []algorithms.Metric

func (o *own) Metrics() iter.Seq[algorithms.Metric] { return slices.Values(*o) }

func TestASourceOfAUsersOwn(t *testing.T) {
	registry := prometheus.NewRegistry()
	register(t, registry,
		&own{{Name: "shop_carts_total", Labels: []string{"state", "full"}, Value: 3}, {Name: "shop_wait", Value: 2, Bounds: []float64{1}, Counts: []uint64{4, 5}}},
		&own{{Name: "shop_wait", Value: 2, Bounds: []float64{1, 2}, Counts: []uint64{1, 1, 1}}}) // of other bounds
	want(t, registry, map[string]float64{"shop_carts_total full": 3, "shop_wait": 11})

	wrong := prometheus.NewRegistry()
	register(t, wrong, &own{{Name: "ratelimit_rules", Labels: []string{"one", "too many"}}})
	if _, err := wrong.Gather(); err == nil {
		t.Error("a label that the metric does not have is accepted")
	}
}

// Requests, scrapes, new rules and new middlewares do not wait for each other, and no
// request is lost.
func TestScrapesDuringChanges(t *testing.T) {
	registry, guard := prometheus.NewRegistry(), guarding(t, new(algorithms.Memory))
	limit := newLimit(t, guard, "r")
	register(t, registry, limit)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for j := range 50 {
				switch i {
				case 0:
					take(t, limit, 4)
				case 1:
					if err := limit.SetRules(named([]string{"s", "r"}[1-j%2:]...)); err != nil {
						t.Error(err)
					}
				case 2:
					register(t, registry, newLimit(t, guard, "r"))
				default:
					if _, err := registry.Gather(); err != nil {
						t.Error(err)
					}
					limit.TopDenied(5)
				}
			}
		})
	}
	all.Wait()
	want(t, registry, map[string]float64{"decisions_total sliding_window allowed r memory": 200, "rules_generation": 101, "store_duration_seconds": 200})
}

// A program that does not want Prometheus or the operators' page links nothing of them.
func TestOnlyWhatIsUsedIsLinked(t *testing.T) {
	const module = "github.com/seed75154129/ratelimit/"
	links := func(packages ...string) (found []string) {
		t.Helper()
		args := []string{"list", "-deps"}
		for _, p := range packages {
			args = append(args, module+p)
		}
		out, err := exec.CommandContext(t.Context(), "go", args...).Output()
		if failed, ok := errors.AsType[*exec.ExitError](err); ok {
			t.Fatalf("%v\n%s", err, failed.Stderr)
		} else if err != nil {
			t.Fatal(err)
		}
		for p := range strings.FieldsSeq(string(out)) {
			if strings.HasPrefix(p, "github.com/prometheus/") || strings.HasPrefix(p, "google.golang.org/protobuf") || p == "html/template" {
				found = append(found, p)
			}
		}
		return found
	}
	if found := links("algorithms", "failmode", "headers", "keyfunc", "middleware", "middleware/rulefile"); found != nil {
		t.Errorf("a program without metrics and the page links %q", found)
	}
	if links("middleware/metrics") == nil || links("middleware/admin") == nil {
		t.Error("nothing is found where they are linked")
	}
}
