package redistest

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Server is a Redis or Valkey process. Its methods may be called from several
// goroutines, but like all that can end a test, those that take a TB only from
// the test's own.
type Server struct {
	Addr string // "127.0.0.1:port", also after a Restart

	bin  string
	args []string
	env  []string
	dir  string
	log  string      // path of the file with the process's output
	tls  *tls.Config // of clients; nil unless the server speaks TLS

	mu   sync.Mutex
	proc *process
}

// Start starts a server and returns when it answers. args are added to
// its command line, so they override what Start sets: no persistence, DEBUG
// allowed. The port is not theirs to set, nor a password: give the server one
// with CONFIG SET or ACL SETUSER.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	s := newServer(tb, tb.TempDir(), nil)
	s.start(tb, freePort, args)
	return s
}

// newServer is a server that keeps its files in dir and is stopped in tb's
// Cleanup. It has yet to start.
func newServer(tb testing.TB, dir string, env []string) *Server {
	tb.Helper()
	s := &Server{bin: serverProgram(tb), dir: dir, env: env, log: filepath.Join(dir, "redis.log")}
	tb.Cleanup(func() { s.Stop(tb) })
	return s
}

func (s *Server) start(tb testing.TB, nextPort func() (int, error), args []string) {
	tb.Helper()
	var err error
	outside(func() {
		err = s.onSomePort(nextPort, func(port int) ([]string, error) {
			listen := []string{"--port", strconv.Itoa(port)}
			if s.tls != nil {
				listen = []string{"--port", "0", "--tls-port", strconv.Itoa(port)}
			}
			return slices.Concat(listen, []string{
				"--bind", loopbackIP, "--dir", s.dir,
				"--save", "", "--appendonly", "no", "--rdb-del-sync-files", "yes",
				"--daemonize", "no", "--enable-debug-command", "yes",
			}, args), nil
		})
	})
	if err != nil {
		tb.Fatalf("redistest: start %s: %v\n%s", s.bin, err, s.Log())
	}
}

// onSomePort launches the server on a port that turns out to be free. args
// makes its command line.
func (s *Server) onSomePort(nextPort func() (int, error), args func(port int) ([]string, error)) error {
	var err error
	// Between choosing a port and listening on it anybody may take it.
	for range 10 {
		var port int
		if port, err = nextPort(); err != nil {
			return err
		}
		s.Addr = loopback(port)
		if s.args, err = args(port); err != nil {
			return err
		}
		if err = s.launch(); err == nil || !s.portWasTaken() {
			return err
		}
		_ = os.Remove(s.log) // or the next try would be blamed for this one
	}
	return err
}

// launch starts the process and waits until it answers. The caller holds s.mu
// or is alone with s, and is outside any bubble.
func (s *Server) launch() error {
	p, err := spawn(s.bin, s.args, s.env, s.log)
	if err != nil {
		return err
	}
	s.proc = p
	err = waitUntil(p.exited, pollEvery, func() error {
		pid, err := askPid(s.Addr, s.tls)
		if err == nil && pid != p.pid() {
			err = fmt.Errorf("%s is answered by process %d, ours is %d", s.Addr, pid, p.pid())
		}
		return err
	})
	if err != nil {
		return errors.Join(err, p.kill())
	}
	return nil
}

func (s *Server) portWasTaken() bool {
	out, _ := os.ReadFile(s.log)
	return bytes.Contains(out, []byte("Address already in use"))
}

// Options are client options that fail fast: nothing is retried, so that a
// command is executed at most once, and a context's deadline counts. They are
// the caller's to change.
func (s *Server) Options() *redis.Options {
	return &redis.Options{
		Addr:                     s.Addr,
		MaxRetries:               -1, // 0 would mean 3
		DialerRetries:            1,
		DialTimeout:              dialTimeout,
		ReadTimeout:              ioTimeout,
		WriteTimeout:             ioTimeout,
		ContextTimeoutEnabled:    true,
		DisableIdentity:          true, // Redis 7.0 answers CLIENT SETINFO with an error
		TLSConfig:                s.tls.Clone(),
		MaintNotificationsConfig: noMaintNotifications(),
	}
}

const (
	dialTimeout = 5 * time.Second
	ioTimeout   = 5 * time.Second
)

// noMaintNotifications saves a handshake per connection and, in NewClient, a
// DNS look-up, which would outlive a bubble.
func noMaintNotifications() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// Client returns a new client with Options, closed in tb's Cleanup.
func (s *Server) Client(tb testing.TB) *redis.Client {
	c := redis.NewClient(s.Options())
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// Pid is the id of the server's process, or of its last one if it is stopped.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.pid()
}

// Stop kills the server (SIGKILL) and waits until it is gone. A server that
// has ended already stays so.
func (s *Server) Stop(tb testing.TB) {
	tb.Helper()
	s.control(tb, "stop", (*process).kill)
}

// Pause stops the server from running (SIGSTOP): the kernel still accepts
// connections and requests for it, but nothing answers.
func (s *Server) Pause(tb testing.TB) {
	tb.Helper()
	s.control(tb, "pause", (*process).pause)
}

// Resume ends a Pause. The server then works off what it was sent meanwhile,
// even if the sender has given up.
func (s *Server) Resume(tb testing.TB) {
	tb.Helper()
	s.control(tb, "resume", (*process).resume)
}

func (s *Server) control(tb testing.TB, what string, do func(*process) error) {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return // it never started, and tb has failed for that
	}
	var err error
	outside(func() { err = do(s.proc) })
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		missing(tb, noLinux)
	case err != nil:
		tb.Fatalf("redistest: %s %s: %v\n%s", what, s.Addr, err, s.Log())
	}
}

// Restart starts the server again at the same address and with the same
// arguments, after killing it if it still runs. It comes back empty, unless the
// arguments or a SAVE made it persist something.
//
// A go-redis client that has failed to dial PoolSize times meanwhile notices
// only within a second: until then it fails without dialling.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	outside(func() {
		if err = s.proc.kill(); err == nil {
			err = s.launch()
		}
	})
	if err != nil {
		tb.Fatalf("redistest: restart %s: %v\n%s", s.Addr, err, s.Log())
	}
}

// Log is the end of what the server has printed, for a failing test to show.
func (s *Server) Log() string {
	const most = 4 << 10
	out, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	return string(out[max(0, len(out)-most):])
}

func (s *Server) hostPort() (host, port string) {
	host, port, _ = net.SplitHostPort(s.Addr) // made by loopback
	return host, port
}
