// Package examples_test runs the example programs, as processes, from outside.
package examples_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	items = "GET /api/items"
	login = "POST /auth/login"
)

func TestCountedInProcess(t *testing.T) {
	for _, program := range programs {
		s := start(t, program, trusting)

		t.Run(program+"/the headers are of the tightest layer", func(t *testing.T) {
			inOneMinute(t, func(c client) error {
				return errors.Join(
					s.expect(c, items, "200 199/200"),
					s.expect(c.as("user of "+c.ip), items, "200 99/100"),
					s.expect(c, login, "200 4/5"),
				)
			})
		})
		t.Run(program+"/the login routes share one count", func(t *testing.T) {
			inOneMinute(t, func(c client) error {
				return errors.Join(
					s.expect(c, login, "200 4/5", "200 3/5"),
					s.expect(c, "POST /auth/register", "200 2/5", "200 1/5"),
					s.expect(c, "POST /auth/reset-password", "200 0/5", "429 0/5"),
					s.expect(c, login, "429 0/5"),
					s.expect(c, login+"/", "429 0/5"), // no way around
				)
			})
		})
		t.Run(program+"/a denial is charged to no layer", func(t *testing.T) {
			inOneMinute(t, func(c client) error {
				return errors.Join(
					s.expect(c, login, "200 4/5", "200 3/5", "200 2/5", "200 1/5", "200 0/5", "429 0/5", "429 0/5"),
					s.expect(c, items, "200 194/200"),
					s.expect(newClient(), login, "200 4/5"),
				)
			})
		})
		t.Run(program+"/a user is limited at all addresses together", func(t *testing.T) {
			user := "somebody"
			for i := range 99 {
				if _, err := s.send(newClient().as(user), items); err != nil {
					t.Fatalf("request %d: %v", i, err)
				}
			}
			a, err := s.send(newClient().as(user), items)
			// One token is refilled each 0.6 s.
			if err != nil || a.status != 200 || a.limit != "100" || len(a.remaining) > 1 {
				t.Errorf("the 100th request: %s, %v; want few of 100 left", a, err)
			}
			if err := s.expect(newClient().as("somebody else"), items, "200 99/100"); err != nil {
				t.Error(err)
			}
		})
		t.Run(program+"/health checks are not limited", func(t *testing.T) {
			c := newClient().as("monitor")
			for range 250 {
				if err := s.expect(c, "GET /healthz", "200"); err != nil {
					t.Fatal(err)
				}
			}
		})
		t.Run(program+"/JSON", func(t *testing.T) {
			for _, request := range []string{"GET /healthz", items, login, "POST /auth/register", "POST /auth/reset-password"} {
				a, err := s.send(newClient(), request)
				if err != nil || a.status != 200 || !json.Valid([]byte(a.body)) {
					t.Errorf("%s: %s, %v, %q", request, a, err, a.body)
				}
			}
		})
	}
}

// Without -trusted-proxies nobody chooses an address or a user.
func TestTrustsNobodyByDefault(t *testing.T) {
	inOneMinute(t, func(c client) error {
		s := start(t, "stdlib")
		return errors.Join(
			s.expect(c.as("alice"), items, "200 199/200"),
			s.expect(newClient().as("bob"), items, "200 198/200"),
		)
	})
}

func TestEndsBySignal(t *testing.T) {
	for _, sig := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			s := start(t, "stdlib", trusting) // else it hints at X-Forwarded-For
			if err := s.expect(newClient(), items, "200 199/200"); err != nil {
				t.Error(err)
			}
			s.end(t, sig)
			if s.stderr.Len() > 0 {
				t.Errorf("on stderr: %s", s.stderr.String())
			}
			if _, err := s.send(newClient(), items); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("a request after the end: %v", err)
			}
		})
	}
}

func TestMistakesInFlags(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()

	tests := map[string]struct {
		args   []string
		status int
		says   []string
	}{
		"unknown flag":       {[]string{"-limit=3"}, 2, []string{"-limit", "-h lists"}},
		"argument":           {[]string{"redis://localhost"}, 2, []string{`"redis://localhost"`, "-h lists"}},
		"address, no port":   {[]string{"-addr=localhost"}, 2, []string{`-addr "localhost"`, "missing port", "host:port"}},
		"address, bad port":  {[]string{"-addr=localhost:99999"}, 2, []string{`-addr "localhost:99999"`, "host:port"}},
		"address, busy":      {[]string{"-addr=" + busy.Addr().String()}, 1, []string{"-addr", busy.Addr().String(), "address already in use", "another address"}},
		"admin, no port":     {[]string{"-admin=localhost"}, 2, []string{`-admin "localhost"`, "missing port", "host:port"}},
		"admin, busy":        {[]string{"-addr=127.0.0.1:0", "-admin=" + busy.Addr().String()}, 1, []string{"-admin", busy.Addr().String(), "address already in use"}},
		"rules, none":        {[]string{"-rules=nowhere.yaml"}, 1, []string{"nowhere.yaml", "no such file"}},
		"rules, bad":         {[]string{"-rules=../testdata/rules/bad/limits.yaml"}, 1, []string{"limits.yaml:3:31: rules[0].limit: ", "; ../testdata"}},
		"redis, no scheme":   {[]string{"-redis=localhost:6379"}, 2, []string{`-redis "localhost:6379"`, "redis://host:6379"}},
		"redis, not a Redis": {[]string{"-redis=http://localhost"}, 2, []string{`-redis "http://localhost"`, "scheme: http", "redis://host:6379"}},
		"redis, bad port":    {[]string{"-redis=redis://localhost:x"}, 2, []string{`-redis "redis://localhost:x"`, "invalid port", "redis://host:6379"}},
		"redis, database":    {[]string{"-redis=redis://localhost/shop"}, 2, []string{"-redis", "invalid database number", "redis://host:6379"}},
		"redis, option":      {[]string{"-redis=redis://localhost?retry=1"}, 2, []string{"-redis", "unexpected option: retry"}},
		"redis, password":    {[]string{"-redis=redis://:se/cr#et@localhost:6379"}, 2, []string{`-redis "…@localhost:6379"`, "escape"}},
		"cluster":            {[]string{"-redis=10.0.0.1:6379,10.0.0.2"}, 2, []string{`-redis "10.0.0.1:6379,10.0.0.2"`, "10.0.0.2: missing port", "host:port,host:port"}},
		"network":            {[]string{"-trusted-proxies=10.0.0.1/8"}, 2, []string{"-trusted-proxies", `"10.0.0.1/8"`, "write 10.0.0.0/8"}},
		"two networks":       {[]string{"-trusted-proxies=10.0.0.0/33,lan"}, 2, []string{"-trusted-proxies", `"10.0.0.0/33"`, `"lan"`}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			stdout, stderr, status := run(t, tt.args...)
			if status != tt.status || stdout != "" {
				t.Errorf("status %d, stdout %q; want %d and nothing", status, stdout, tt.status)
			}
			if strings.Count(stderr, "\n") != 1 || !strings.HasSuffix(stderr, "\n") {
				t.Errorf("not one line:\n%s", stderr)
			}
			for _, text := range tt.says {
				if !strings.Contains(stderr, text) {
					t.Errorf("does not say %s:\n%s", text, stderr)
				}
			}
			if strings.Contains(stderr, "se/cr") || strings.Contains(stderr, "cr#et") {
				t.Errorf("says the password:\n%s", stderr)
			}
		})
	}
	t.Run("help", func(t *testing.T) {
		stdout, stderr, status := run(t, "-h")
		if status != 0 || stderr != "" || strings.Count("\n"+stdout, "\n  -") != 5 {
			t.Errorf("status %d, stdout\n%s\nstderr\n%s", status, stdout, stderr)
		}
	})
}

// run runs an example that is to end by itself.
func run(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(binaries, "stdlib"), args...)
	cmd.Env = environment
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// The examples differ in their router alone.
func TestSameService(t *testing.T) {
	var sources []string
	for _, program := range programs {
		source, err := os.ReadFile(filepath.Join(program, "main.go"))
		if err != nil {
			t.Fatal(err)
		}
		_, code, ok := strings.Cut(string(source), "\nfunc main() {")
		if !ok {
			t.Fatalf("%s has no main", program)
		}
		sources = append(sources, regexp.MustCompile(`(?s)\nfunc routes\(.*?\n}\n`).ReplaceAllString(code, ""))
	}
	if sources[0] != sources[1] {
		t.Error("the examples differ in more than their routes: diff stdlib/main.go chi/main.go")
	}
}
