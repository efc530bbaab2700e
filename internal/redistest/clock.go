package redistest

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/redis/go-redis/v9"
)

//go:embed shim/clock.c
var shimSource string

// Clock is the wall clock of a server. It stands still until it is set, and
// counts microseconds; what is finer is cut off. Set and Advance are seen by
// the next command the server executes. Safe for concurrent use, also when the
// server is stopped or the test over.
type Clock struct {
	micros *atomic.Int64 // in a page shared with the server
}

// Set makes it t, which may be before the last, but not before 1970.
func (c *Clock) Set(t time.Time) { c.micros.Store(t.UnixMicro()) }

// Advance moves it by d, back if negative.
func (c *Clock) Advance(d time.Duration) { c.micros.Add(d.Microseconds()) }

// Now is the time the server has.
func (c *Clock) Now() time.Time { return time.UnixMicro(c.micros.Load()) }

// StartWithClock is Start with a server whose clock only the test moves; it
// begins at the present. TIME, expiry and scripts follow it exactly.
//
// The server's timers run on in real time. What it times with the wall clock
// does not end by itself, though: CLIENT PAUSE, and the timeouts of blocking
// commands and of replication.
func StartWithClock(tb testing.TB, args ...string) (*Server, *Clock) {
	tb.Helper()
	clock, env, clockArgs := clockFor(tb)
	s := newServer(tb, tb.TempDir(), env)
	s.start(tb, freePort, append(clockArgs, args...))
	var err error
	outside(func() { err = s.follows(clock) })
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	return s, clock
}

// follows is nil if the server has the clock's time. One that moves its time
// forward by itself between two readings (see shim/clock.c) would make tests
// fail at random.
func (s *Server) follows(clock *Clock) error {
	client := redis.NewClient(s.Options())
	defer func() { _ = client.Close() }()
	for range 5 {
		now, err := client.Time(context.Background()).Result()
		if err != nil {
			return err
		}
		if want := clock.Now(); !now.Equal(want) {
			return fmt.Errorf("%s does not follow the clock of the test: its time is %v, want %v", s.bin, now, want)
		}
	}
	return nil
}

// clockFor makes a clock, and what a server needs to go by it.
func clockFor(tb testing.TB) (clock *Clock, env, args []string) {
	tb.Helper()
	if runtime.GOOS != "linux" {
		missing(tb, noLinux)
	}
	gcc := program(tb, "gcc", noGCC)
	dir := tb.TempDir()
	shim, page := filepath.Join(dir, "clock.so"), filepath.Join(dir, "clock")

	var err error
	outside(func() {
		if clock, err = newClock(page); err == nil {
			err = compileShim(gcc, shim)
		}
	})
	if err != nil {
		tb.Fatalf("redistest: clock: %v", err)
	}
	// jemalloc's background thread sleeps until an absolute wall-clock time:
	// with a clock in the past it would not sleep at all, but keep a CPU busy.
	return clock, []string{"LD_PRELOAD=" + shim, "REDISTEST_CLOCK=" + page}, []string{"--jemalloc-bg-thread", "no"}
}

// newClock makes a clock in the file path, set to the present.
func newClock(path string) (*Clock, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // the mapping stays
	if err := f.Truncate(8); err != nil {
		return nil, err
	}
	page, err := mapFile(f, 8)
	if err != nil {
		return nil, err
	}
	// The page stays mapped when the test is over: it is small, and a Set that
	// comes late from some goroutine is harmless this way.
	clock := &Clock{micros: (*atomic.Int64)(unsafe.Pointer(&page[0]))}
	clock.Set(time.Now())
	return clock, nil
}

// compileShim takes some 50 ms. Each server has its own copy, in its own
// directory, because a shared one would need somebody to remove it in the end.
func compileShim(gcc, out string) error {
	cmd := exec.Command(gcc, "-shared", "-fPIC", "-O2", "-Wall", "-o", out, "-x", "c", "-")
	cmd.Stdin = strings.NewReader(shimSource)
	if msg, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", gcc, err, msg)
	}
	return nil
}
