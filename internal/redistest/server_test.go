package redistest

import (
	"context"
	"errors"
	"net"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestStopAndRestart(t *testing.T) {
	t.Parallel()
	s := Start(t)
	rdb := s.Client(t)
	if err := rdb.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	pid := s.Pid()

	s.Stop(t)
	s.Stop(t) // does nothing
	if err := rdb.Ping(t.Context()).Err(); err == nil {
		t.Error("a stopped server answers")
	}

	s.Restart(t)
	if err := rdb.Get(t.Context(), "k").Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("GET after Restart: %v, want redis.Nil: an empty server at the same address", err)
	}
	if s.Pid() == pid {
		t.Errorf("pid %d is that of the killed process", pid)
	}

	pid = s.Pid()
	s.Restart(t)
	if s.Pid() == pid {
		t.Error("Restart left a running server as it was")
	}
}

// TestPauseInBubble controls in a bubble a server from outside.
func TestPauseInBubble(t *testing.T) {
	t.Parallel()
	s := Start(t)
	synctest.Test(t, func(t *testing.T) {
		rdb := s.Client(t)
		incr := func(timeout time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			return rdb.Incr(ctx, "n").Err()
		}
		if err := incr(time.Second); err != nil {
			t.Fatal(err)
		}

		s.Pause(t)
		if err := incr(50 * time.Millisecond); err == nil {
			t.Error("a paused server answers")
		}
		s.Resume(t)
		// It executes what it was sent, though the caller gave up.
		for n := ""; n != "2"; {
			if n = rdb.Get(t.Context(), "n").Val(); n != "1" && n != "2" {
				t.Fatalf("n = %q, want 1, and 2 when the server has worked it off", n)
			}
		}

		s.Pause(t)
		s.Restart(t)
		if err := rdb.Get(t.Context(), "n").Err(); !errors.Is(err, redis.Nil) {
			t.Errorf("after Restart of a paused server: %v", err)
		}
	})
}

// TestPortTaken is about the race between choosing a port and listening on it,
// lost once to a stranger and once to another Redis, which would answer PING.
func TestPortTaken(t *testing.T) {
	t.Parallel()
	stranger, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stranger.Close() }()
	other := Start(t)

	taken := []string{stranger.Addr().String(), other.Addr}
	next := func() (int, error) {
		if len(taken) == 0 {
			return freePort()
		}
		_, port, _ := net.SplitHostPort(taken[0])
		taken = taken[1:]
		return strconv.Atoi(port)
	}
	s := newServer(t, t.TempDir(), nil)
	s.start(t, next, nil)
	if len(taken) > 0 || s.Addr == stranger.Addr().String() || s.Addr == other.Addr {
		t.Fatalf("the server says it is at %s", s.Addr)
	}
	if pid, err := askPid(s.Addr, nil); err != nil || pid != s.Pid() {
		t.Errorf("askPid = %d, %v, want %d", pid, err, s.Pid())
	}
}
