package failmode_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/internal/redistest"
)

// An old server, and what makes it answer every decision with an error.
type oldServer func(t *testing.T) (addr string, spoil func())

// spoiledBy is a real server that some commands spoil.
func spoiledBy(commands ...[]any) oldServer {
	return func(t *testing.T) (string, func()) {
		dir := t.TempDir()
		server := redistest.Start(t, "--dir", dir)
		if err := os.Mkdir(filepath.Join(dir, "dump.rdb"), 0o700); err != nil { // so that none can be saved
			t.Fatal(err)
		}
		return server.Addr, func() {
			admin := server.Client(t)
			for _, c := range commands {
				if err := admin.Do(t.Context(), c...).Err(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// answering is a server that comes to answer every script in these words.
func answering(words string) oldServer {
	return func(t *testing.T) (string, func()) {
		var spoiled atomic.Bool
		return redistest.StartAnswering(t, redistest.Start(t).Addr, func(args []string) string {
			if spoiled.Load() && isScript(args[0]) {
				return "-" + words + "\r\n"
			}
			return ""
		}), func() { spoiled.Store(true) }
	}
}

// sentinelOf is a Sentinel that names the server at addr the master.
func sentinelOf(t *testing.T, addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return redistest.StartAnswering(t, redistest.Start(t).Addr, func(args []string) string {
		switch {
		case args[0] == "hello":
			return "-ERR unknown command\r\n" // replies are in RESP2
		case args[0] != "sentinel":
			return ""
		case args[1] == "get-master-addr-by-name":
			return fmt.Sprintf("*2\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(host), host, len(port), port)
		}
		return "*0\r\n"
	})
}

func isScript(command string) bool { return command == "evalsha" || command == "eval" }

// In whatever words a server fails, and whatever leads to it, five decisions open its circuit,
// and rules that fail closed admit nothing. A circuit that is open finds out that its address has come to mean another server,
// whatever the old one answers on the connections that there are.
func TestAnAddressThatMoves(t *testing.T) {
	const patience = 10 * time.Second
	for name, old := range map[string]oldServer{
		"READONLY":   spoiledBy([]any{"REPLICAOF", "127.0.0.1", 1}),
		"NOREPLICAS": spoiledBy([]any{"CONFIG", "SET", "min-replicas-to-write", 1}),
		"MASTERDOWN": spoiledBy([]any{"CONFIG", "SET", "replica-serve-stale-data", "no"}, []any{"REPLICAOF", "127.0.0.1", 1}),
		"OOM":        spoiledBy([]any{"CONFIG", "SET", "maxmemory", 1}),
		"MISCONF":    spoiledBy([]any{"CONFIG", "SET", "save", "3600 1"}, []any{"BGSAVE"}),
		"NOPERM":     spoiledBy([]any{"ACL", "SETUSER", "default", "-evalsha", "-eval"}),

		"READONLY of a managed service": answering("ERR READONLY You can't write against a read only replica."),
		"LOADING":                       answering("LOADING Redis is loading the dataset in memory"),
		"CLUSTERDOWN":                   answering("CLUSTERDOWN The cluster is down"),
		"NOAUTH":                        answering("NOAUTH Authentication required."),
		"a proxy whose server is gone":  answering("ERR Connection refused"),
		"words of no list":              answering("NAPPING come back later"),
	} {
		for kind, client := range map[string]func(addr string) redis.UniversalClient{
			"client": func(addr string) redis.UniversalClient {
				return redis.NewClient(algorithms.FailFast(&redis.Options{Addr: addr, MinIdleConns: 5, DialTimeout: patience, ReadTimeout: patience, PoolTimeout: patience}))
			},
			"sentinel": func(addr string) redis.UniversalClient {
				return redis.NewFailoverClient(algorithms.FailFast(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{sentinelOf(t, addr)}, MinIdleConns: 5, DialTimeout: patience, ReadTimeout: patience, PoolTimeout: patience}))
			},
			"cluster": func(addr string) redis.UniversalClient {
				slots := func(context.Context) ([]redis.ClusterSlot, error) {
					return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: addr}}}}, nil
				}
				return redis.NewClusterClient(algorithms.FailFast(&redis.ClusterOptions{ClusterSlots: slots, MinIdleConns: 5, DialTimeout: patience, ReadTimeout: patience, PoolTimeout: patience}))
			},
			"ring": func(addr string) redis.UniversalClient {
				return redis.NewRing(algorithms.FailFast(&redis.RingOptions{Addrs: map[string]string{"a": addr}, MinIdleConns: 5, DialTimeout: patience, ReadTimeout: patience, PoolTimeout: patience}))
			},
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				addr, spoil := old(t)
				proxy := redistest.StartProxy(t, addr)
				rdb := client(proxy.Addr)
				defer rdb.Close()
				g := &failmode.Guard{Limiter: &algorithms.Redis{Client: rdb, Namespace: "test", Budget: patience}, Instances: 1, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
				defer g.Close()
				if err := g.Warm(t.Context()); err != nil {
					t.Fatal(err)
				}
				spoil()
				failed := 0
				until(t, "five decisions open the circuit", func() bool {
					if failed < 5 {
						d, err := g.Take(t.Context(), algorithms.Check{Rule: "login", Key: "k", Limit: algorithms.PerHour(1_000_000), Fail: failmode.Closed})
						if err != nil || d.Allowed && d.Results[0].Source != algorithms.SourceRedis {
							t.Errorf("a rule that fails closed: %+v, %v", d, err)
						}
						if !d.Allowed {
							failed++
						}
					}
					return openShards(g) == 1
				})
				proxy.MoveTo(redistest.Start(t).Addr)
				moved := time.Now()
				until(t, "the new server decides", func() bool { return decided(t, g) == algorithms.SourceRedis })
				if took := time.Since(moved); took > 2*time.Second { // about half a second on an idle machine
					t.Errorf("after %s", took)
				}
				until(t, "no connection to the old server is left", func() bool { // one may have been in use
					var all sync.WaitGroup
					var old atomic.Bool
					for range 100 {
						all.Go(func() {
							if decided(t, g) != algorithms.SourceRedis {
								old.Store(true)
							}
						})
					}
					all.Wait()
					return !old.Load()
				})
			})
		}
	}
}

// decided is what decides a request.
func decided(t *testing.T, g *failmode.Guard) algorithms.Source {
	t.Helper()
	d, err := g.Take(t.Context(), algorithms.Check{Rule: "r", Key: "k", Limit: algorithms.PerHour(1_000_000)})
	if err != nil {
		t.Error(err)
		return algorithms.SourceNone
	}
	return d.Results[0].Source
}

// until polls for a condition.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for begun := time.Now(); !holds(); time.Sleep(time.Millisecond) {
		if time.Since(begun) > 10*time.Second {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}
