package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/cmd/ratelimit/internal/cli"
)

// TestMain lets tests start this binary as the command.
func TestMain(m *testing.M) {
	if os.Getenv("RATELIMIT_COMMAND") != "" {
		main()
	}
	os.Exit(m.Run())
}

// runs runs the command in this process.
func runs(stdin io.Reader, args ...string) (status int, stdout, stderr string) {
	var out, errs strings.Builder
	status = run(cli.Streams{In: stdin, Out: &out, Err: &errs}, args)
	return status, out.String(), errs.String()
}

// file writes a file and returns its path.
func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const (
	rulesText = "version: 1\nrules: [{name: per-ip, key: ip, limit: 2/1m fixed_window}]\n"
	logLine   = `192.0.2.1 - - [20/Nov/2026:09:00:00 +0000] "GET / HTTP/1.1" 200 5` + "\n"
)

func TestCommands(t *testing.T) {
	rules, log, empty := file(t, "rules.yaml", rulesText), file(t, "access.log", logLine), file(t, "empty", "")
	nowhere, dir := filepath.Join(t.TempDir(), "nowhere"), t.TempDir()
	const list = "usage: ratelimit COMMAND"
	for _, c := range []struct {
		args           string
		status         int
		stdout, stderr string // a part, or "" for nothing
	}{
		{"", 2, "", list},
		{"help", 0, list, ""},
		{"-h", 0, list, ""},
		{"--help", 0, list, ""},
		{"chek " + rules, 2, "", `no command "chek"; do you mean check?`},
		{"frobnicate", 2, "", "no command \"frobnicate\"\n\n" + list},
		{"help frobnicate", 2, "", list},
		{"help diff", 0, "usage: ratelimit diff [flags] FILE\n", ""},
		{"help lab", 0, "usage: ratelimit lab [flags]\n", ""},
		{"check -h", 0, "  ratelimit check rules.yaml\n", ""},
		{"replay --help", 0, "Exit codes: ", ""},
		{"publish -h", 0, "  -replaces number\n", ""},

		{"check " + rules, 0, "per-ip: [2/1m fixed_window] by ip\n", ""},
		{"check " + log, 1, "", "access.log:1:"},
		{"check " + nowhere, 1, "", "no such file"},
		{"check " + dir, 1, "", "is no regular file"},
		{"check " + empty, 1, "", "empty"},
		{"check", 2, "", "usage: ratelimit check [flags] FILE\nratelimit check -h explains it\n"},
		{"check " + rules + " -keys user", 2, "", "flags come first"},

		{"replay -rules " + rules + " " + log, 0, "1 requests from 2026-11-20 09:00:00", ""},
		{"replay -v -rules " + rules + " " + log, 0, "1 requests from 2026-11-20 09:00:00", ""},
		{"replay -rules " + rules + " " + empty, 1, "", "no request in "},
		{"replay -rules " + rules + " " + nowhere, 1, "", "no such file"},
		{"replay -rules " + rules + " " + dir, 1, "", "is a directory"},
		{"replay -rules " + log + " " + log, 1, "", "access.log:1:"},
		{"replay -rules " + rules + " -o " + dir + " " + log, 1, "1 requests", "is a directory"},
		{"replay " + log, 2, "", "-rules is required"},
		{"replay -rules " + rules + " -o " + log + " " + log, 2, "", "would overwrite"},
		{"replay -rules " + rules + " -o " + rules + " " + log, 2, "", "would overwrite"},
		{"replay -rules " + rules + " " + log, 0, "1 requests", ""}, // both are still there

		{"diff -namespace shop -redis redis://127.0.0.1:1 " + rules, 2, "", "connection refused"},
		{"diff -namespace shop -redis redis://127.0.0.1:1 " + nowhere, 2, "", "no such file"},
		{"history -namespace shop -redis redis://127.0.0.1:1", 1, "", "connection refused"},
		{"publish -namespace shop -redis redis://127.0.0.1:1 -yes " + nowhere, 1, "", "no such file"},
		{"publish -namespace shop -redis http://127.0.0.1 -yes " + rules, 2, "", "no URL of a Redis"},

		{"lab -addr 256.0.0.1:0", 1, "", "choose another address"},
		{"lab -result " + log, 1, "", "ratelimit replay -o writes such a file"},
	} {
		status, stdout, stderr := runs(strings.NewReader(""), strings.Fields(c.args)...)
		says := func(got, want string) bool { return strings.Contains(got, want) && (want != "" || got == "") }
		if status != c.status || !says(stdout, c.stdout) || !says(stderr, c.stderr) {
			t.Errorf("ratelimit %s: %d, want %d, %q, %q\n%s\n%s", c.args, status, c.status, c.stdout, c.stderr, stdout, stderr)
		}
	}
}

// endless is a stream of itself that never ends.
type endless string

func (s endless) Read(p []byte) (int, error) { return copy(p, s), nil }

// Input that is too large takes no memory.
func TestHugeInput(t *testing.T) {
	zeros := endless(make([]byte, 64<<10))
	line := io.MultiReader(strings.NewReader(logLine), io.LimitReader(zeros, 1<<30), strings.NewReader("\n"+logLine))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	status, stdout, stderr := runs(line, "replay", "-rules", file(t, "rules.yaml", rulesText), "-")
	if status != 0 || !strings.Contains(stdout, "2 requests") || !strings.Contains(stdout, "1 × line too long") {
		t.Errorf("%d\n%s\n%s", status, stdout, stderr)
	}
	if status, _, stderr := runs(zeros, "check", "-"); status != 1 || !strings.Contains(stderr, "larger than 1048576 bytes") {
		t.Errorf("%d\n%s", status, stderr)
	}
	runtime.ReadMemStats(&after)
	if grown := (after.TotalAlloc - before.TotalAlloc) >> 20; grown > 256 { // half of it is never used
		t.Errorf("%d MiB", grown)
	}
}

// A server that takes connections and answers nothing holds nobody up.
func TestRedisDoesNotAnswer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	url := fmt.Sprintf("redis://:secret@%s?read_timeout=50ms", listener.Addr())
	begin := time.Now()
	status, stdout, stderr := runs(strings.NewReader("y\n"), "publish", "-namespace", "shop", "-redis", url, file(t, "rules.yaml", rulesText))
	if status != 1 || stdout != "" || !strings.Contains(stderr, "i/o timeout") || strings.Contains(stderr, "secret") {
		t.Errorf("%d\n%s\n%s", status, stdout, stderr)
	}
	if d := time.Since(begin); d > 5*time.Second {
		t.Errorf("took %v", d)
	}
}

// started starts the command as a process, with an open standard input.
func started(t *testing.T, args ...string) (command *exec.Cmd, stdin io.Writer, stdout *bufio.Reader, stderr *bytes.Buffer) {
	t.Helper()
	command = exec.CommandContext(t.Context(), os.Args[0], args...)
	command.Env = append(os.Environ(), "RATELIMIT_COMMAND=1", "GORACE=atexit_sleep_ms=10")
	stderr = new(bytes.Buffer)
	command.Stderr = stderr
	in, err := command.StdinPipe()
	out, err2 := command.StdoutPipe()
	if err := errors.Join(err, err2, command.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close() })
	return command, in, bufio.NewReader(out), stderr
}

func TestInterrupt(t *testing.T) {
	// The lab ends well.
	command, _, stdout, stderr := started(t, "lab", "-addr", "127.0.0.1:0")
	if line, err := stdout.ReadString('\n'); err != nil || !strings.HasPrefix(line, "listening on http://127.0.0.1:") {
		t.Fatalf("%q, %v, %s", line, err, stderr)
	}
	if err := errors.Join(command.Process.Signal(os.Interrupt), command.Wait()); err != nil || stderr.Len() > 0 {
		t.Errorf("%v, %s", err, stderr)
	}

	// A replay of what never ends ends at once, and reports nothing.
	command, stdin, stdout, stderr := started(t, "replay", "-rules", file(t, "rules.yaml", rulesText), "-")
	_, err := io.WriteString(stdin, strings.Repeat(logLine, 10_000)) // more than a pipe holds
	if err := errors.Join(err, command.Process.Signal(os.Interrupt)); err != nil {
		t.Fatal(err)
	}
	rest, _ := io.ReadAll(stdout)
	exit, ok := errors.AsType[*exec.ExitError](command.Wait())
	if !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGINT || len(rest) > 0 || stderr.Len() > 0 {
		t.Errorf("%v, %q, %q", exit, rest, stderr)
	}
}
