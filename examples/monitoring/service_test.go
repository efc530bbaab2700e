package monitoring_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// An example is examples/stdlib, running on ports of 127.0.0.1.
type example struct{ addr, admin string }

// startExample builds and starts the example. The test's cleanup ends it.
func startExample(t *testing.T, args ...string) *example {
	t.Helper()
	// Not the test's context, which is over before the cleanups.
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	program := filepath.Join(t.TempDir(), "stdlib")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", program, "../stdlib").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	cmd := exec.CommandContext(ctx, program, append(args, "-addr=127.0.0.1:0", "-admin=127.0.0.1:0", "-trusted-proxies=127.0.0.0/8")...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	run(t, cmd)
	lines, e := bufio.NewScanner(stdout), new(example)
	for _, addr := range []*string{&e.addr, &e.admin} {
		lines.Scan()
		if m := listens.FindStringSubmatch(lines.Text()); m != nil {
			*addr = m[1]
		} else {
			t.Fatalf("printed %q", lines.Text())
		}
	}
	return e
}

var listens = regexp.MustCompile(`http://([0-9.:]+)`)

// run starts a process. The test's cleanup ends it, and wants a clean end.
func run(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		web.CloseIdleConnections()
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", cmd, err)
		}
		if t.Failed() {
			t.Logf("stderr of %s:\n%s", cmd, stderr.String())
		}
	})
}

var web = &http.Client{
	Timeout:   5 * time.Second,
	Transport: &http.Transport{MaxIdleConnsPerHost: 16},
}

// send sends a request such as "GET /api/items" from a client, as a trusted proxy
// would.
func (e *example) send(request, ip, user string) { e.sendTo(e.addr, request, ip, user) }

// sendTo returns the body; "" if there was no answer.
func (e *example) sendTo(addr, request, ip, user string) (body string) {
	method, path, _ := strings.Cut(request, " ")
	r, err := http.NewRequest(method, "http://"+addr+path, nil)
	if err != nil {
		return ""
	}
	r.Header.Set("X-Forwarded-For", ip)
	r.Header.Set("X-User-ID", user)
	resp, err := web.Do(r)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return string(text)
}
