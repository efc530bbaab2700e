package redistest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// verdict is a TB that keeps how its test ended.
type verdict struct {
	testing.TB // for what is not overridden
	outcome    string
	cleanups   []func()
}

type ended struct{}

func (v *verdict) Helper()          {}
func (v *verdict) Cleanup(f func()) { v.cleanups = append(v.cleanups, f) }
func (v *verdict) Skip(args ...any) { v.end("skip", args[0].(string)) }
func (v *verdict) Fatal(args ...any) {
	v.end("fatal", args[0].(string))
}

func (v *verdict) Fatalf(format string, _ ...any) {
	v.end("fatal", format)
}

func (v *verdict) end(how, text string) {
	v.outcome = how + ": " + text
	panic(ended{})
}

// outcome runs f as a test and tells how it ended.
func outcome(t *testing.T, f func(testing.TB)) string {
	v := &verdict{TB: t}
	func() {
		defer func() {
			if r := recover(); r != nil && r != (ended{}) {
				panic(r)
			}
		}()
		f(v)
	}()
	for _, f := range v.cleanups {
		f()
	}
	return v.outcome
}

func TestMissingPrograms(t *testing.T) {
	server := serverProgram(t)
	starts := map[string]struct {
		server, text string
		start        func(testing.TB)
	}{
		"Start":          {"", noServer, func(tb testing.TB) { Start(tb) }},
		"none":           {"none", "REDIS_SERVER=none", func(tb testing.TB) { Start(tb) }},
		"StartTLS":       {"", noServer, func(tb testing.TB) { StartTLS(tb) }},
		"StartCluster":   {"", noServer, func(tb testing.TB) { StartCluster(tb) }},
		"StartSentinel":  {"", noServer, func(tb testing.TB) { StartSentinel(tb) }},
		"StartWithClock": {server, noGCC, func(tb testing.TB) { StartWithClock(tb) }},
	}
	for name, tt := range starts {
		for require, how := range map[string]string{"": "skip: ", "1": "fatal: "} {
			t.Run(name+" REQUIRE_REDIS="+require, func(t *testing.T) {
				t.Setenv("PATH", t.TempDir())
				t.Setenv("REDIS_SERVER", tt.server)
				t.Setenv("REQUIRE_REDIS", require)
				if got := outcome(t, tt.start); !strings.HasPrefix(got, how+tt.text) {
					t.Errorf("got %q, want %q", got, how+tt.text)
				}
			})
		}
	}
}

func TestServerProgram(t *testing.T) {
	path := serverProgram(t)
	dir := t.TempDir()
	if err := os.Symlink(path, filepath.Join(dir, "another-server")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	for name, want := range map[string]string{path: path, "another-server": filepath.Join(dir, "another-server")} {
		t.Setenv("REDIS_SERVER", name)
		if got := serverProgram(t); got != want {
			t.Errorf("REDIS_SERVER=%s: %s, want %s", name, got, want)
		}
	}
	for _, name := range []string{"no-such-server", "./no-such-server", dir} {
		t.Setenv("REDIS_SERVER", name)
		if got := outcome(t, func(tb testing.TB) { Start(tb) }); !strings.HasPrefix(got, "fatal: redistest: REDIS_SERVER") {
			t.Errorf("REDIS_SERVER=%s: %q, want a failure, also without REQUIRE_REDIS", name, got)
		}
	}
}

func TestServerThatCannotStart(t *testing.T) {
	t.Parallel()
	serverProgram(t)
	var s *Server
	got := outcome(t, func(tb testing.TB) { s = Start(tb, "--no-such-option", "1") })
	if !strings.HasPrefix(got, "fatal: ") || s != nil {
		t.Errorf("got %q", got)
	}
}
