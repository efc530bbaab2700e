package redistest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

const (
	masterName    = "limits"
	sentinelCount = 3
)

// Sentinel is a master and its replica, watched by three sentinels. The roles
// are those at the start: a failover changes them, and nothing here follows.
type Sentinel struct {
	Master    *Server
	Replica   *Server
	Sentinels []*Server
}

// StartSentinel starts them and returns when all know each other, which takes
// Redis two seconds. args are added to the command lines of master and replica.
// A master counts as failed after half a second of silence.
func StartSentinel(tb testing.TB, args ...string) *Sentinel {
	tb.Helper()
	args = append([]string{"--repl-diskless-sync-delay", "0"}, args...)
	s := &Sentinel{Master: Start(tb, args...)}
	host, port := s.Master.hostPort()
	s.Replica = Start(tb, append([]string{"--replicaof", host + " " + port}, args...)...)
	must := func(f func() error) {
		var err error
		outside(func() { err = waitUntil(s.Master.proc.exited, clusterEvery, f) })
		if err != nil {
			tb.Fatalf("redistest: form a sentinel group: %v\n%s", err, s.Replica.Log())
		}
	}
	// A sentinel that finds no replica looks again only after ten seconds.
	must(func() error { return errors.Join(s.Master.replicates(), s.Replica.replicates()) })
	for range sentinelCount {
		s.Sentinels = append(s.Sentinels, startSentinel(tb, s.Master))
	}
	must(s.allKnown)
	return s
}

// startSentinel starts one sentinel. What it learns it writes into its
// configuration file, so that has to be one.
func startSentinel(tb testing.TB, master *Server) *Server {
	tb.Helper()
	s := newServer(tb, tb.TempDir(), nil)
	host, port := master.hostPort()
	var err error
	outside(func() {
		err = s.onSomePort(freePort, func(own int) ([]string, error) {
			conf := filepath.Join(s.dir, "sentinel.conf")
			return []string{conf, "--sentinel"}, os.WriteFile(conf, fmt.Appendf(nil, `
bind 127.0.0.1
port %d
dir "%s"
daemonize no
sentinel monitor %[3]s %[4]s %[5]s 2
sentinel down-after-milliseconds %[3]s 500
sentinel failover-timeout %[3]s 2000
`, own, s.dir, masterName, host, port), 0o600)
		})
	})
	if err != nil {
		tb.Fatalf("redistest: start a sentinel: %v\n%s", err, s.Log())
	}
	return s
}

// allKnown is nil once each sentinel knows the master, the replica and the
// other sentinels.
func (s *Sentinel) allKnown() error {
	want := fmt.Sprintf("status=ok,address=%s,slaves=1,sentinels=%d", s.Master.Addr, sentinelCount)
	for _, sentinel := range s.Sentinels {
		info, err := sentinel.ask("INFO", "sentinel").Text()
		if err == nil && !strings.Contains(info, want) {
			err = fmt.Errorf("sentinel %s: want %s:\n%s", sentinel.Addr, want, info)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Options are client options that fail fast like those of a Server: the client
// asks the sentinels who is the master. They are the caller's to change.
func (s *Sentinel) Options() *redis.FailoverOptions {
	var addrs []string
	for _, sentinel := range s.Sentinels {
		addrs = append(addrs, sentinel.Addr)
	}
	return &redis.FailoverOptions{
		MasterName:            masterName,
		SentinelAddrs:         addrs,
		MaxRetries:            -1,
		DialerRetries:         1,
		DialTimeout:           dialTimeout,
		ReadTimeout:           ioTimeout,
		WriteTimeout:          ioTimeout,
		ContextTimeoutEnabled: true,
		DisableIdentity:       true,
	}
}
