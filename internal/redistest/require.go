package redistest

import (
	"os"
	"os/exec"
	"testing"
)

const (
	noServer = "redis-server not found: install Debian's redis-server, or name another in REDIS_SERVER"
	noGCC    = "gcc not found: install Debian's gcc (it compiles the clock of StartWithClock)"
	noLinux  = "not Linux: redistest pauses servers and sets their clock only there"
)

// missing ends a test that cannot run here for want of what: skipped on a
// developer's machine, failed with REQUIRE_REDIS=1.
func missing(tb testing.TB, what string) {
	tb.Helper()
	if os.Getenv("REQUIRE_REDIS") == "1" {
		tb.Fatal(what + " (REQUIRE_REDIS=1: a skip is a failure)")
	}
	tb.Skip(what)
}

// program is the path of a program without which the test cannot run.
func program(tb testing.TB, name, ifMissing string) string {
	tb.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		missing(tb, ifMissing)
	}
	return path
}

// serverProgram is the path of the server that all tests run on: what
// REDIS_SERVER names, or else redis-server. If REDIS_SERVER names something
// that is not there the test fails: a skip would hide the mistake. "none" is no server.
func serverProgram(tb testing.TB) string {
	tb.Helper()
	name := os.Getenv("REDIS_SERVER")
	switch name {
	case "none":
		missing(tb, "REDIS_SERVER=none")
	case "":
		return program(tb, "redis-server", noServer)
	}
	path, err := exec.LookPath(name)
	if err != nil {
		tb.Fatalf("redistest: REDIS_SERVER: %v", err)
	}
	return path
}
