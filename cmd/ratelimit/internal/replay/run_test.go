package replay

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed75154129/ratelimit/cmd/ratelimit/internal/cli"
	"github.com/seed75154129/ratelimit/cmd/ratelimit/internal/replayed"
)

const rulesText = `version: 1
rules:
  - {name: per-ip, key: ip, limit: 3/1m sliding_log}
  - {name: login, match: [POST /login], key: ip, limit: 2/1m sliding_log, charge_on: [401]}
`

// file writes a file in the test's folder and returns its path.
func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// runs runs the program and returns what it printed and, if all went well, the
// result that it wrote.
func runs(t *testing.T, stdin string, args ...string) (status int, stdout, stderr string, result replayed.Result) {
	t.Helper()
	output := filepath.Join(t.TempDir(), "result.json")
	var out, errs strings.Builder
	status = Command.Execute(cli.Streams{In: strings.NewReader(stdin), Out: &out, Err: &errs}, append([]string{"-o", output}, args...))
	if f, err := os.Open(output); err == nil {
		defer f.Close()
		if result, err = replayed.Read(f); err != nil {
			t.Fatal(err)
		}
	}
	return status, out.String(), errs.String(), result
}

// replays runs the program on a log from standard input, and fails the test unless
// it ends well and prints all of want.
func replays(t *testing.T, rules, log string, flags []string, want ...string) (string, replayed.Result) {
	t.Helper()
	status, stdout, stderr, result := runs(t, log, append(append([]string{"-rules", file(t, "rules.yaml", rules)}, flags...), "-")...)
	if status != 0 || stderr != "" {
		t.Fatalf("status %d\n%s\n%s", status, stdout, stderr)
	}
	for _, text := range want {
		if !strings.Contains(stdout, text) {
			t.Errorf("does not say %q:\n%s", text, stdout)
		}
	}
	return stdout, result
}

// numbers are a rule's requests, denials, clients and denied clients.
func numbers(t *testing.T, r replayed.Result, name string) [4]int64 {
	t.Helper()
	for _, rule := range r.Rules {
		if rule.Name == name {
			return [4]int64{rule.Requests, rule.Denied, rule.Clients, rule.Limited}
		}
	}
	t.Fatalf("no rule %q", name)
	return [4]int64{}
}

const combined = `192.0.2.1 - - [20/Nov/2026:09:00:00 +0000] "GET / HTTP/1.1" 200 512 "-" "curl/8"
192.0.2.1 - - [20/Nov/2026:09:00:01 +0000] "GET /a HTTP/1.1" 200 512 "-" "curl/8"
192.0.2.1 - - [20/Nov/2026:09:00:02 +0000] "GET /b HTTP/1.1" 200 512 "-" "curl/8"
192.0.2.1 - - [20/Nov/2026:09:00:03 +0000] "GET /c HTTP/1.1" 200 512 "-" "curl/8"
192.0.2.2 - bob [20/Nov/2026:09:00:04 +0000] "POST /login HTTP/1.1" 401 9 "-" "x"
192.0.2.2 - bob [20/Nov/2026:09:00:05 +0000] "POST /login/ HTTP/1.1" 401 9 "-" "x"
192.0.2.2 - bob [20/Nov/2026:09:00:06 +0000] "POST //login HTTP/1.1" 200 9 "-" "x"
192.0.2.3 - bob [20/Nov/2026:09:00:07 +0000] "POST /login HTTP/1.1" 200 9 "-" "x"
192.0.2.3 - bob [20/Nov/2026:09:00:07 +0000] "POST /login HTTP/1.1" 303 9 "-" "x"
192.0.2.3 - bob [20/Nov/2026:09:00:07 +0000] "POST /login HTTP/1.1" 200 9 "-" "x"
`

func TestReport(t *testing.T) {
	stdout, result := replays(t, rulesText, combined, nil)
	const want = `10 requests from 2026-11-20 09:00:00 to 2026-11-20 09:00:07Z, 2 denied (20.00 %)
  stdin: 10 lines

rule    limit             requests  denied           clients  clients denied
per-ip  3/1m sliding_log  10        1       10.00 %  3        1               33.33 %
login   2/1m sliding_log  6         1       16.67 %  2        1               50.00 %

per-ip
  most denied: 192.0.2.1 (1 of 4 requests)
  smallest limit that denies under 1 % of the clients: 4/1m sliding_log (0 of 3)

login
  most denied: 192.0.2.2 (1 of 3 requests)
  smallest limit that denies under 1 % of the clients: 3/1m sliding_log (0 of 2)

worst minutes
  2026-11-20 09:00Z  2 of 10 denied (per-ip 1, login 1)
`
	if stdout != want {
		t.Errorf("%s\nwant\n%s", stdout, want)
	}
	if got := numbers(t, result, "login"); got != [4]int64{6, 1, 2, 1} || result.Minutes[0].ByRule["per-ip"] != 1 || len(result.Clients) != 2 ||
		result.Rules[0].Smallest != "4/1m sliding_log" || result.Rules[0].Under != 0.01 || result.Rules[1].Key != "ip" {
		t.Errorf("%v %+v", got, result)
	}

	// The windows of a rule are one decision.
	stdout, result = replays(t, "version: 1\nrules: [{name: plan, key: ip, limit: [9/1m, 3/1h]}]", combined, nil)
	if got := numbers(t, result, "plan"); got != [4]int64{10, 1, 3, 1} || result.Rules[0].Limit != "9/1m, 3/1h" || !strings.Contains(stdout, "plan  9/1m, 3/1h  10 ") {
		t.Errorf("%v %+v\n%s", got, result.Rules, stdout)
	}
}

// What is wrong with the arguments, the rules and the logs is said, and the status
// tells.
func TestMistakes(t *testing.T) {
	rules := file(t, "rules.yaml", rulesText)
	bad := file(t, "bad.yaml", "version: 1\nrules:\n  - {name: a, key: tenant, limit: 5-S}\n")
	log := file(t, "access.log", combined)
	for want, c := range map[string]struct {
		status int
		args   []string
	}{
		"-rules is required":                   {2, []string{log}},
		"usage: ratelimit replay [flags] LOG…": {2, []string{"-rules", rules}},
		"-rules is behind":                     {2, []string{"-v", log, "-rules", rules}},
		"-under 0: must be above 0":            {2, []string{"-rules", rules, "-under", "0", log}},
		"-under NaN: must be above 0":          {2, []string{"-rules", rules, "-under", "NaN", log}},
		"write NAME=FIELD":                     {2, []string{"-rules", rules, "-field", "tenant", log}},
		"unknown time zone Nowhere":            {2, []string{"-rules", rules, "-zone", "Nowhere", log}},
		"10.0.0.0/8 for the network":           {2, []string{"-rules", rules, "-trusted-proxies", "10.1.1.1/8", log}},
		"nowhere.yaml: no such file":           {1, []string{"-rules", "nowhere.yaml", log}},
		"bad.yaml:3:35: rules[0].limit: limit": {1, []string{"-rules", bad, log}},
		"nowhere.log: no such file":            {1, []string{"-rules", rules, "nowhere.log"}},
		"no request in":                        {1, []string{"-rules", rules, rules}},
		"is a directory":                       {1, []string{"-rules", rules, t.TempDir()}},
		"middleware: skip: pattern":            {1, []string{"-rules", rules, "-skip", "GET", log}},
		"-routes: ":                            {1, []string{"-rules", rules, "-routes", "GET /{a", log}},
	} {
		if status, stdout, stderr, _ := runs(t, "", c.args...); status != c.status || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%q: %d, want %d and %q\n%s\n%s", c.args, status, c.status, want, stdout, stderr)
		}
	}
}
