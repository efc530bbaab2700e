package outages

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/internal/redistest"
	"github.com/seed75154129/ratelimit/keyfunc"
	"github.com/seed75154129/ratelimit/middleware/rulefile"
)

// ruleFile is rules, as a file has them, with a limit of "each".
func ruleFile(each int) string {
	return fmt.Sprintf(`version: 1
rules:
  - {name: each, key: client, limit: %[1]d/%[2]s fixed_window}
  - {name: local, match: [/local], key: client, limit: %[3]d/%[2]s sliding_window}
  - {name: open, match: [/open], key: client, fail: open, limit: 10000/%[2]s fixed_window}
  - {name: closed, match: [/closed], key: client, fail: closed, limit: 10000/%[2]s sliding_log}
`, each, forGood, limit)
}

// Whatever becomes of the rule file, the rules stay until there is a good one, and
// no request notices. Metrics say that new rules are refused.
func TestRuleFileIsBad(t *testing.T) {
	srv := redistest.Start(t)
	file := filepath.Join(t.TempDir(), "rules.yaml")
	write := func(text string) { // at once, or the loader may find the file empty before
		t.Helper()
		next := file + ".next"
		if err := errors.Join(os.WriteFile(next, []byte(text), 0o600), os.Rename(next, file)); err != nil {
			t.Fatal(err)
		}
	}
	good := ruleFile(1_000_000)
	write(good)
	r := load{client: failFast(t, srv.Addr), length: 5 * time.Second}.start(t)

	loader := &rulefile.Loader{
		Source: rulefile.File(file), Every: 50 * time.Millisecond,
		Keys: map[string]keyfunc.Key{"client": keyfunc.Func(func(r *http.Request) (string, error) { return recordOf(r).client, nil })},
	}
	ctx, stop := context.WithCancel(t.Context())
	r.beside.Go(func() { loader.Watch(ctx, r.limit) })
	t.Cleanup(stop) // before the load's, which waits for it

	until := func(step string, failing, failures float64, each int64) {
		t.Helper()
		eventually(t, func() error {
			if now, n := r.gauge("ratelimit_rules_failing"), r.gauge("ratelimit_rules_errors_total"); now != failing || n != failures {
				return fmt.Errorf("%s: failing %v, %v failures; want %v and %v", step, now, n, failing, failures)
			}
			if rules := r.limit.Rules(); len(rules) != 4 || rules[0].Limit.Rate != each {
				return fmt.Errorf("%s: %d rules, the first with %d units", step, len(rules), rules[0].Limit.Rate)
			}
			return nil
		})
	}
	bad := []struct {
		name string
		make func()
	}{
		{"empty", func() { write("") }},
		{"half-written", func() {
			half, _, _ := strings.Cut(good, "10000/")
			write(half)
		}},
		{"a bad limit", func() { write(strings.Replace(good, "1000000/", "-1/", 1)) }},
		{"removed", func() {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}},
	}
	for i, b := range bad {
		b.make()
		until(b.name, 1, float64(i+1), 1_000_000)
	}
	write(ruleFile(2_000_000))
	eventually(t, func() error {
		if each := r.limit.Rules()[0].Limit.Rate; each != 2_000_000 || r.gauge("ratelimit_rules_failing") != 0 {
			return fmt.Errorf("mended, and %d is in force", each)
		}
		return nil
	})
	stop()
	r.check(promise{row: row{17, "rule file empty, half-written, bad, removed"}, servers: []*redistest.Server{srv}, waits: r.strays()})
}

// gauge is the value of a metric without labels.
func (r *run) gauge(name string) float64 {
	r.t.Helper()
	for m := range r.limit.Metrics() {
		if m.Name == name {
			return m.Value
		}
	}
	r.t.Fatalf("no metric %s", name)
	return 0
}
