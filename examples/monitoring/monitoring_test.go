// Package monitoring_test checks the alerts and the dashboard: their syntax,
// that they name what exists, and that they work on a Prometheus server that
// scrapes an example.
package monitoring_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed75154129/ratelimit"
	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
	"github.com/seed75154129/ratelimit/middleware/metrics"
)

// tool is the path of a program of Debian's package prometheus.
func tool(t *testing.T, name string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("it starts prometheus or its tools")
	}
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("REQUIRE_PROMETHEUS") == "1" {
			t.Fatal("REQUIRE_PROMETHEUS=1: ", err)
		}
		t.Skip("needs prometheus: apt-get install prometheus; REQUIRE_PROMETHEUS=1 makes this a failure: ", err)
	}
	return path
}

// promtool runs it with something on its stdin and fails the test unless it is content.
func promtool(t *testing.T, stdin string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, tool(t, "promtool"), args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestPromtool(t *testing.T) {
	t.Run("rules", func(t *testing.T) { promtool(t, "", "check", "rules", "alerts.yml") })
	t.Run("config", func(t *testing.T) { promtool(t, "", "check", "config", "prometheus.yml") })
	t.Run("alerts", func(t *testing.T) { promtool(t, "", "test", "rules", "alerts_test.yml") })
	t.Run("dashboard", func(t *testing.T) {
		// No command checks an expression alone.
		var rules strings.Builder
		rules.WriteString("groups: [{name: dashboard, rules: [\n")
		for i, q := range queries(t) {
			fmt.Fprintf(&rules, "  {record: panel:%d, expr: %q},\n", i, filled(q.expr, "5m"))
		}
		rules.WriteString("]}]\n")
		file := filepath.Join(t.TempDir(), "rules.yml")
		if err := os.WriteFile(file, []byte(rules.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		promtool(t, "", "check", "rules", file)
	})
	t.Run("metrics", func(t *testing.T) {
		tool(t, "promtool")
		s := startExample(t)
		s.send("GET /api/items", "192.0.2.1", "alice")
		metrics := s.sendTo(s.admin, "GET /metrics", "", "")
		if !strings.Contains(metrics, `ratelimit_decisions_total{algorithm="sliding_window",outcome="allowed",rule="per-ip",source="memory"} 1`) {
			t.Errorf("GET /metrics does not have the request before:\n%s", metrics)
		}
		promtool(t, metrics, "check", "metrics")
	})
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// forMinutes is how long an alert and its section say that it has lasted.
var forMinutes = regexp.MustCompile(`(?i)\bfor (three|five|ten) minutes`)

// Every alert has a severity, a test where it fires, one where it does not, and
// a section that says what to do. How long it says that it has lasted is how long it waits.
func TestAlertsAreComplete(t *testing.T) {
	sections := read(t, "../../docs/alerts.md")
	tests := read(t, "alerts_test.yml")
	_, alerts, _ := strings.Cut(read(t, "alerts.yml"), "- alert: ")
	for alert := range strings.SplitSeq(alerts, "- alert: ") {
		name, _, _ := strings.Cut(alert, "\n")
		for _, field := range []string{"severity: ", "summary: ", "description: ", "/docs/alerts.md#" + strings.ToLower(name) + "\n"} {
			if !strings.Contains(alert, field) {
				t.Errorf("%s has no %q", name, field)
			}
		}
		_, section, found := strings.Cut(sections, "\n## "+name+"\n")
		if !found {
			t.Errorf("docs/alerts.md has no section %s", name)
		}
		section, _, _ = strings.Cut(section, "\n## ")
		for _, said := range forMinutes.FindAllStringSubmatch(alert+section, -1) {
			minutes := map[string]int{"three": 3, "five": 5, "ten": 10}[strings.ToLower(said[1])]
			if want := fmt.Sprintf("\n        for: %dm\n", minutes); !strings.Contains(alert, want) {
				t.Errorf("%s: it says %q, and has no%s", name, said[0], want)
			}
		}
		if !strings.Contains(tests, "- alertname: "+name+"\n") || !strings.Contains(tests, "- {alertname: "+name+",") {
			t.Errorf("alerts_test.yml wants %s never to fire, or never not to", name)
		}
	}
}

// A query is one of the dashboard's.
type query struct{ panel, expr string }

type dashboard struct {
	SchemaVersion int
	UID, Title    string
	Templating    struct {
		List []struct {
			Name, Type string
			Query      any
		}
	}
	Panels []struct {
		ID                       int
		Type, Title, Description string
		GridPos                  struct{ X, Y, W, H int }
		Datasource               struct{ Type, UID string }
		Targets                  []struct {
			Datasource  struct{ Type, UID string }
			RefID, Expr string
		}
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	if err := json.Unmarshal([]byte(read(t, "dashboard.json")), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func queries(t *testing.T) (all []query) {
	t.Helper()
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			all = append(all, query{p.Title, target.Expr})
		}
	}
	if len(all) == 0 {
		t.Fatal("the dashboard has no queries")
	}
	return all
}

// filled is what Grafana makes of an expression with everything selected.
func filled(expr, interval string) string {
	return strings.NewReplacer("$__rate_interval", interval, "$job", ".*", "$rule", ".*").Replace(expr)
}

// What Grafana would only show as an empty or overlapping panel.
func TestDashboardIsComplete(t *testing.T) {
	d := readDashboard(t)
	if d.SchemaVersion != 42 || d.UID == "" || d.Title == "" {
		t.Errorf("schema version %d, uid %q, title %q", d.SchemaVersion, d.UID, d.Title)
	}
	variables := map[string]bool{"$__rate_interval": true}
	for _, v := range d.Templating.List {
		variables["$"+v.Name] = true
	}
	for _, name := range []string{"$datasource", "$job", "$rule"} {
		if !variables[name] {
			t.Errorf("no variable %s", name)
		}
	}
	ids, taken := map[int]string{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if other, ok := ids[p.ID]; ok || p.ID == 0 {
			t.Errorf("%s and %s have the id %d", p.Title, other, p.ID)
		}
		ids[p.ID] = p.Title
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other, ok := taken[[2]int{x, y}]; ok || x >= 24 {
					t.Fatalf("%s is over %s or over the edge, at %d,%d", p.Title, other, x, y)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if p.Title == "" || p.Description == "" || len(p.Targets) == 0 || p.Datasource.UID != "${datasource}" {
			t.Errorf("panel %d %q: no description, targets or data source", p.ID, p.Title)
		}
		refs := map[string]bool{}
		for _, target := range p.Targets {
			if refs[target.RefID] || target.Datasource.UID != "${datasource}" {
				t.Errorf("%s: target %q is twice, or without data source", p.Title, target.RefID)
			}
			refs[target.RefID] = true
			for _, name := range regexp.MustCompile(`\$\w+`).FindAllString(target.Expr, -1) {
				if !variables[name] {
					t.Errorf("%s: no variable %s", p.Title, name)
				}
			}
		}
	}
}

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
			Name: "queue", Key: keyfunc.IP, Ban: ratelimit.Ban{After: 10, For: time.Hour}, Tiers: map[string][]ratelimit.Limit{"pro": {ratelimit.PerMinute(100)}},
			Limit: ratelimit.Limit{Rate: 10, Period: time.Second, Burst: 3, Algorithm: algorithms.LeakyBucket},
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
