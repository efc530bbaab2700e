package examples_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// programs are the examples. They differ in their router alone, so tests of flags,
// stores and rule files run against the first.
var programs = []string{"stdlib", "chi"}

// binaries is the folder that TestMain builds them in.
var binaries string

func TestMain(m *testing.M) {
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "examples")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binaries = dir
	args := []string{"build", "-o", dir + string(filepath.Separator)}
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		args = append(args, "-race") // as the tests are; a race makes the exit status 66
	}
	for _, program := range programs {
		args = append(args, "./"+program)
	}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go %s: %v\n%s", strings.Join(args, " "), err, out)
		return 1
	}
	return m.Run()
}

// environment spares every end of a program the second that the race detector
// waits for more races.
var environment = append(os.Environ(), "GORACE=atexit_sleep_ms=10")

// trusting makes a service believe this test what it says about its clients.
const trusting = "-trusted-proxies=127.0.0.0/8"

// A service is an example that runs on a port of 127.0.0.1.
type service struct {
	url     string
	admin   string // what is for operators; "" without -admin
	command *exec.Cmd
	stdout  *bufio.Reader
	stderr  strings.Builder // to be read once it has ended
	ended   bool
}

// start starts an example and returns when it listens. The test's cleanup ends
// it, and fails the test unless it ends well.
func start(t *testing.T, program string, args ...string) *service {
	t.Helper()
	// Not the test's context, which is over before the cleanups.
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	s := &service{command: exec.CommandContext(ctx, filepath.Join(binaries, program), append(args, "-addr=127.0.0.1:0")...)}
	s.command.Env = environment
	s.command.Stderr = &s.stderr
	stdout, err := s.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.stdout = bufio.NewReader(stdout)
	if err := s.command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.end(t, syscall.SIGTERM) })

	line, err := s.stdout.ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if err != nil || !ok {
		t.Fatalf("%s %v: printed %q, %v", program, args, line, err)
	}
	s.url = url
	if slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "-admin=") }) {
		line, err := s.stdout.ReadString('\n')
		admin, ok := strings.CutPrefix(strings.TrimSpace(line), "for operators: ")
		if admin, _, _ = strings.Cut(admin, "/ratelimit/"); err != nil || !ok {
			t.Fatalf("%s %v: printed %q, %v", program, args, line, err)
		}
		s.admin = admin
	}
	return s
}

// end ends the service by a signal, unless it has ended, and reports whatever
// is not a clean end.
func (s *service) end(t *testing.T, sig os.Signal) {
	t.Helper()
	if s.ended {
		return
	}
	s.ended = true
	web.CloseIdleConnections() // Shutdown waits for those without a request yet
	if err := s.command.Process.Signal(sig); err != nil {
		t.Error(err)
	}
	rest, _ := io.ReadAll(s.stdout)
	if err := s.command.Wait(); err != nil {
		t.Errorf("ended by %v: %v, want status 0", sig, err)
	}
	if len(rest) > 0 {
		t.Errorf("more than where it listens on stdout: %q", rest)
	}
	if t.Failed() {
		t.Logf("stderr of %s:\n%s", s.command, s.stderr.String())
	}
}

// A client is who a request is from, as a trusted proxy says.
type client struct{ ip, user, plan, password string }

var clients atomic.Uint32

// newClient is one whose address nobody has seen yet.
func newClient() client {
	n := clients.Add(1)
	return client{ip: fmt.Sprintf("10.%d.%d.%d", n>>16&255, n>>8&255, n&255)}
}

// as is the same client, logged in as a user.
func (c client) as(user string) client { c.user = user; return c }

// on is the same client, with a plan.
func (c client) on(plan string) client { c.plan = plan; return c }

// with is the same client, with a password.
func (c client) with(password string) client { c.password = password; return c }

// An answer is what the limits made of a request.
type answer struct {
	status           int
	limit, remaining string
	body             string
}

// String is such as "200 4/5", or "200" without X-RateLimit headers.
func (a answer) String() string {
	if a.limit == "" {
		return strconv.Itoa(a.status)
	}
	return fmt.Sprintf("%d %s/%s", a.status, a.remaining, a.limit)
}

var web = &http.Client{
	Timeout:   5 * time.Second,
	Transport: &http.Transport{MaxIdleConnsPerHost: 64},
}

// send sends a request such as "GET /api/items" and returns an error if the
// answer's headers make no sense.
func (s *service) send(c client, request string) (answer, error) {
	method, path, _ := strings.Cut(request, " ")
	r, err := http.NewRequest(method, s.url+path, nil)
	if err != nil {
		return answer{}, err
	}
	r.Header.Set("X-Forwarded-For", c.ip)
	if c.user != "" {
		r.Header.Set("X-User-ID", c.user)
	}
	if c.plan != "" {
		r.Header.Set("X-Plan", c.plan)
	}
	if c.password != "" {
		r.SetBasicAuth("alice", c.password)
	}
	begin := time.Now()
	resp, err := web.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, err
	}
	a := answer{resp.StatusCode, resp.Header.Get("X-RateLimit-Limit"), resp.Header.Get("X-RateLimit-Remaining"), string(body)}
	return a, check(a, resp.Header, begin)
}

// check returns what is wrong with the headers of any answer.
func check(a answer, h http.Header, begin time.Time) error {
	retry, reset := h.Get("Retry-After"), h.Get("X-RateLimit-Reset")
	if denied := a.status == http.StatusTooManyRequests || a.status == http.StatusServiceUnavailable; denied != (retry != "") {
		return fmt.Errorf("status %d, Retry-After %q", a.status, retry)
	}
	if seconds, err := strconv.Atoi(retry); retry != "" && (err != nil || seconds < 1 || seconds > 120) {
		return fmt.Errorf("Retry-After %q, want 1 to 120 s", retry)
	}
	if a.limit == "" != (a.remaining == "") || a.limit == "" != (reset == "") {
		return fmt.Errorf("X-RateLimit headers are not all there: %v", h)
	}
	// All is free at the latest when a sliding window has passed twice.
	if unix, err := strconv.ParseInt(reset, 10, 64); reset != "" && (err != nil || unix < begin.Unix() || unix > begin.Unix()+125) {
		return fmt.Errorf("X-RateLimit-Reset %q at %d", reset, begin.Unix())
	}
	return nil
}

// errUndecided is an answer that Redis did not decide although it was there: a
// busy machine may need longer for that than the limiter's budget.
var errUndecided = errors.New("not decided by Redis")

// undecided reports whether a layer that fails open or closed did so. Where only
// per-user was undecided nothing shows it.
func (a answer) undecided() bool {
	return a.limit == "" || a.status == http.StatusServiceUnavailable
}

// isShare reports whether the limit is half of the one that was wanted: the share by
// which one of two processes counts what Redis did not decide in time.
func (a answer) isShare(want string) bool {
	_, limit, _ := strings.Cut(want, "/")
	whole, err := strconv.Atoi(limit)
	return err == nil && a.limit == strconv.Itoa(whole/2)
}

// expect sends a request as often as there are answers wanted.
func (s *service) expect(c client, request string, want ...string) error {
	for i := range want {
		a, err := s.send(c, request)
		switch {
		case err != nil || a.String() == want[i]:
		case (a.undecided() || a.isShare(want[i])) && strings.Contains(want[i], "/"):
			err = errUndecided
		default:
			err = errors.New("wrong")
		}
		if err != nil {
			return fmt.Errorf("%s, time %d of %d: %s, want %s: %w", request, i+1, len(want), a, want[i], err)
		}
	}
	return nil
}

// inOneMinute runs try with a new client, and again with another one if a minute
// of the clock ended in between, since windows are aligned to it, or if an answer
// was undecided. What goes wrong every time is no accident.
func inOneMinute(t *testing.T, try func(client) error) {
	t.Helper()
	var err error
	for range 8 {
		minute := time.Now().Unix() / 60
		if err = try(newClient()); time.Now().Unix()/60 == minute && !errors.Is(err, errUndecided) {
			break
		}
		t.Logf("again: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// eventually polls until try returns nil.
func eventually(t *testing.T, try func() error) {
	t.Helper()
	begin := time.Now()
	for range time.Tick(10 * time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if time.Since(begin) > 10*time.Second {
			t.Fatalf("for 10 s: %v", err)
		}
	}
}
