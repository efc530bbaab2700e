package rules

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/cmd/ratelimit/internal/cli"
	"github.com/seed75154129/ratelimit/middleware/rulefile"
)

const corpus = "../../../../testdata/rules"

// runs runs a command, with a text as standard input.
func runs(stdin string, args ...string) (status int, stdout, stderr string) {
	var out, errs strings.Builder
	status = execute(cli.Streams{In: strings.NewReader(stdin), Out: &out, Err: &errs}, args)
	return status, out.String(), errs.String()
}

func execute(s cli.Streams, args []string) int {
	commands := map[string]*cli.Command{"check": Check, "publish": Publish, "diff": Diff, "history": History}
	return commands[args[0]].Execute(s, args[1:])
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestGoodFilesArePrinted(t *testing.T) {
	for name, want := range map[string]string{
		"all_fields": "login: [100/1m fixed_window] by [tenant, route]; internal: unlimited; pro: [1000/1m fixed_window]; in shadow, enforced for 10% of the keys\n" +
			"hot: [10000/1s] by everyone\nexports: [2 in flight] by ip\nplan: [10/1s 100000/720h] by ip\n",
		"login_and_users": "login: [5/1m sliding_log] by ip\n" +
			"per-user: [100/1m token_bucket] by user; enterprise: [10000/1m token_bucket]; pro: [1000/1m token_bucket]; in shadow, enforced for 10% of the keys\n",
		"short": "per-ip: [100/1m] by ip\n",
	} {
		path := filepath.Join(corpus, "good", name)
		status, stdout, stderr := runs("", "check", "-keys", "user,tenant,route", "-tiers", "pro,enterprise,internal", path+".yaml")
		if status != 0 || stdout != want || stderr != "" {
			t.Errorf("%s: %d\n%s\n%s", name, status, stdout, stderr)
		}
		if status, stdout, stderr := runs(read(t, path+".yaml"), "check", "-"); status != 0 || stdout != want || stderr != notChecked[name] {
			t.Errorf("%s, from standard input: %d\n%s\n%s", name, status, stdout, stderr)
		}
	}
	shadow := strings.Replace(read(t, corpus+"/good/short.yaml"), "limit:", "shadow: true, limit:", 1)
	if status, stdout, _ := runs(shadow, "check", "-"); status != 0 || stdout != "per-ip: [100/1m] by ip; in shadow\n" {
		t.Errorf("%d %s", status, stdout)
	}
	// What a service would warn of.
	few := strings.Replace(read(t, corpus+"/good/short.yaml"), "100/min", "3/1m", 1)
	if status, _, stderr := runs(few, "check", "-"); status != 0 || !strings.HasPrefix(stderr, `warning: rule "per-ip": the limit 3/1m is a sliding_window`) {
		t.Errorf("%d %s", status, stderr)
	}
	// A key that the program may not have.
	typo := strings.Replace(read(t, corpus+"/good/login_and_users.yaml"), "key: user", "key: usr", 1)
	if status, _, stderr := runs(typo, "check", "-"); status != 0 || !strings.HasPrefix(stderr, "not checked: whether the program has the keys usr; give its names with -keys") {
		t.Errorf("%d %s", status, stderr)
	}
}

// notChecked is what is said without the program's names.
var notChecked = map[string]string{
	"all_fields": "not checked: whether the program has the keys route, tenant; give its names with -keys\n" +
		"not checked: whether the program has these tiers; give its names with -tiers\n",
	"login_and_users": "not checked: whether the program has the keys user; give its names with -keys\n" +
		"not checked: whether the program has these tiers; give its names with -tiers\n",
}

// The day on which Santiago's clocks have no midnight.
func TestBoundariesArePrinted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	const document = "version: 1\nrules:\n  - {name: plan, key: ip, limit: 9/day@America/Santiago, tiers: {a: 99/month@UTC, b: 999/day@America/Santiago, c: unlimited, d: 5/1m}, " +
		"overrides: [{client: 192.0.2.1, limit: 5/year@UTC}, {client: 192.0.2.2, limit: [5/1m, 99/month@UTC]}]}\n"
	if err := os.WriteFile(path, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	rules, err := (&rulefile.Loader{}).Parse(path, []byte(document))
	if err != nil {
		t.Fatal(err)
	}
	const want = "plan: the next day@America/Santiago begins 2026-09-06 01:00 -03:00, 2026-09-06 04:00 UTC\n" +
		"plan: the next month@UTC begins 2026-10-01 00:00 +00:00, 2026-10-01 00:00 UTC\n" +
		"plan: the next year@UTC begins 2027-01-01 00:00 +00:00, 2027-01-01 00:00 UTC\n"
	now := func() time.Time { return time.Date(2026, 9, 5, 12, 0, 0, 0, time.UTC) }
	if got := string(boundaries(rules, now)); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if status, stdout, stderr := runs("", "check", path); status != 0 || strings.Count(stdout, "plan: the next ") != 3 {
		t.Errorf("%d\n%s\n%s", status, stdout, stderr)
	}
}

func TestMistakesArePrinted(t *testing.T) {
	for _, name := range []string{"limits", "patterns", "version_2", "tab"} {
		path := filepath.Join(corpus, "bad", name)
		status, stdout, stderr := runs("", "check", path+".yaml")
		want := read(t, path+".txt")
		if status != 1 || stdout != "" || strings.ReplaceAll(stderr, path+".yaml", name+".yaml") != want {
			t.Errorf("%s: %d\n%s\n%s", name, status, stdout, stderr)
		}
	}
	for want, args := range map[string][]string{
		"no such file":                        {"check", "nowhere.yaml"},
		`no such key: "tenant"`:               {"check", "-keys", "route,user", filepath.Join(corpus, "good/all_fields.yaml")},
		`no such tier; this program has gold`: {"check", "-tiers", "gold", filepath.Join(corpus, "good/all_fields.yaml")},
		"larger than 1048576 bytes":           {"check", "-"},
		"a name has letters":                  {"check", "-keys", "a b", filepath.Join(corpus, "good/short.yaml")},
	} {
		if status, stdout, stderr := runs(strings.Repeat("x", 9<<20), args...); status != 1 || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%q: %d\n%s\n%s; want %s", args, status, stdout, stderr, want)
		}
	}
}

func TestUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"standard input; there are 0": {"check"},
		"standard input; there are 2": {"check", "a", "b"},
		"not defined: -x":             {"check", "-x", "a"},
		"not defined: -namespace":     {"check", "-namespace", "shop", "a"},
		"-keys is behind a: ":         {"check", "a", "-keys", "user"},
		"ratelimit publish: name one": {"publish"},
		`unexpected argument "a"`:     {"history", "a"},
		`unexpected argument "b"`:     {"publish", "-version", "1", "b"},
		"ratelimit diff: name one":    {"diff", "-namespace", "shop"},
		"-namespace is required":      {"diff", "a"},
		"no URL of a Redis; write ":   {"history", "-namespace", "shop", "-redis", "localhost"},
	} {
		if status, stdout, stderr := runs("", args...); status != 2 || stdout != "" || !strings.Contains(stderr, want) || !strings.Contains(stderr, "\nusage: ratelimit "+args[0]) {
			t.Errorf("%q: %d\n%s\n%s", args, status, stdout, stderr)
		}
	}
}
