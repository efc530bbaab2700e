package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/redistest"
)

// A reluctantConn delays its first answer, which is that of the handshake.
type reluctantConn struct {
	net.Conn
	first sync.Once
}

const reluctance = 600 * time.Millisecond

func (c *reluctantConn) Read(p []byte) (int, error) {
	c.first.Do(func() { <-time.After(reluctance) })
	return c.Conn.Read(p)
}

func reluctant(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &reluctantConn{Conn: conn}, nil
}

// reluctantClients are clients whose handshakes take longer than the budget
// that a test gives them.
func reluctantClients(t *testing.T, srv *redistest.Server, cluster *redistest.Cluster) map[string]algorithms.Client {
	slow := redis.Options{Addr: srv.Addr, Dialer: reluctant, ReadTimeout: roomy, DialTimeout: roomy, PoolTimeout: roomy}
	type wrapper struct{ *redis.Client }
	careless := slow
	careless.Protocol = 2
	clients := map[string]algorithms.Client{
		"client":                     redis.NewClient(algorithms.FailFast(new(slow))),
		"not by algorithms.FailFast": redis.NewClient(&careless),
		"wrapped":                    wrapper{redis.NewClient(algorithms.FailFast(new(slow)))},
		"cluster": redis.NewClusterClient(algorithms.FailFast(&redis.ClusterOptions{
			Addrs: cluster.Addrs, Dialer: reluctant, ReadTimeout: roomy, DialTimeout: roomy, PoolTimeout: roomy})),
		"ring": redis.NewRing(algorithms.FailFast(&redis.RingOptions{
			Addrs: map[string]string{"a": srv.Addr}, Dialer: reluctant, ReadTimeout: roomy, DialTimeout: roomy, PoolTimeout: roomy,
			HeartbeatFrequency: time.Hour})),
	}
	t.Cleanup(func() {
		for _, c := range clients {
			_ = c.(interface{ Close() error }).Close()
		}
	})
	return clients
}

// keysEverywhere are checks that the masters of a cluster share.
func keysEverywhere(rule string) (checks []algorithms.Check) {
	for i := range 20 {
		checks = append(checks, algorithms.Check{Rule: rule, Key: fmt.Sprint(i), Limit: perDay(1000)})
	}
	return checks
}

// A connection whose handshake does not fit into the budget of a decision is
// made in the background, or no decision would ever get one. After warm, the
// first decision finds it, and the scripts.
func TestConnectionsThatTakeLongerThanTheBudget(t *testing.T) {
	srv, cluster := redistest.Start(t), redistest.StartCluster(t)
	for name, client := range reluctantClients(t, srv, cluster) {
		t.Run("warm "+name, func(t *testing.T) {
			t.Parallel()
			var rec redistest.Recorder
			client.(interface{ AddHook(redis.Hook) }).AddHook(&rec)
			r := &algorithms.Redis{Client: client, Namespace: "warm", Budget: reluctance / 2}
			if err := storeOf(r).Warm(t.Context()); err != nil {
				t.Fatal(err)
			}
			rec.Take()
			for _, c := range keysEverywhere(name) {
				if d, err := r.Take(t.Context(), c); err != nil || !d.Allowed {
					t.Errorf("key %s: %+v, %v", c.Key, d, err)
				}
			}
			if slices.Contains(rec.Take(), "eval") {
				t.Error("a script was not loaded")
			}
		})
	}
	for name, client := range reluctantClients(t, srv, cluster) {
		t.Run("cold "+name, func(t *testing.T) {
			t.Parallel()
			r := &algorithms.Redis{Client: client, Namespace: "cold", Budget: reluctance / 2}
			failed := 0
			for _, c := range keysEverywhere(name) {
				for {
					d, err := r.Take(t.Context(), c)
					if err == nil && d.Allowed {
						break
					}
					if failed++; failed > 30 {
						t.Fatalf("%d decisions failed, the last with %v", failed, err)
					}
				}
			}
			if failed == 0 {
				t.Error("no decision failed: the handshakes were too fast for this test")
			}
		})
	}
}

func TestWarmSaysWhatIsWrong(t *testing.T) {
	srv := redistest.Start(t)
	if err := srv.Client(t).Do(t.Context(), "ACL", "SETUSER", "limiter", "on", ">secret", "~*", "+@all", "-time").Err(); err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(algorithms.FailFast(&redis.Options{Addr: srv.Addr, Username: "limiter", Password: "secret", ReadTimeout: roomy}))
	defer client.Close()
	for want, r := range map[string]*algorithms.Redis{
		"algorithms: redis: decide for a probe's key: ERR ": {Client: client, Namespace: "n", Budget: roomy},
		"algorithms: redis: dial tcp 127.0.0.1:1: ":         {Client: redis.NewClient(algorithms.FailFast(&redis.Options{Addr: "127.0.0.1:1"})), Namespace: "n"},
	} {
		if err := storeOf(r).Warm(t.Context()); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	s := make(stall)
	defer close(s)
	stuck := redis.NewClient(algorithms.FailFast(&redis.Options{Addr: srv.Addr, OnConnect: func(context.Context, *redis.Conn) error { s.wait(); return nil }}))
	defer stuck.Close()
	begin := time.Now()
	if err := storeOf(&algorithms.Redis{Client: stuck, Namespace: "n"}).Warm(ended); err == nil || time.Since(begin) > time.Second {
		t.Errorf("after %s: %v; want an error at the end of the context", time.Since(begin), err)
	}
}

// Warm finds out whether decisions can be made, in whatever words a server refuses
// commands, and asks for no command that decisions do not need.
func TestWarmMakesADecision(t *testing.T) {
	srv := redistest.Start(t)
	for name, c := range map[string]struct {
		refused []string // commands
		answer  string
		says    string // Warm; "" means that it succeeds
	}{
		"no SCRIPT, by Redis":            {[]string{"script"}, "-NOPERM this user has no permissions to run the 'script|load' command\r\n", ""},
		"no SCRIPT, by a proxy":          {[]string{"script", "info", "hello", "client"}, "-ERR unsupported command\r\n", ""},
		"no SCRIPT, in words of no list": {[]string{"script", "info"}, "-NEVER\r\n", ""},
		"SCRIPT ends the connection":     {[]string{"script", "info"}, redistest.HangUp, ""},
		"no TIME in scripts":             {[]string{"evalsha", "eval"}, "-ERR This Redis command is not allowed from script script: 53aa7d29, on @user_script:13.\r\n", "not allowed from script"},
		"no EVALSHA":                     {[]string{"evalsha"}, "-ERR not here\r\n", "ERR not here"},
		"no scripts at all":              {[]string{"evalsha", "eval", "script"}, "-ERR internal error\r\n", "internal error"},
		"a replica":                      {[]string{"evalsha"}, "-READONLY You can't write against a read only replica.\r\n", "READONLY"},
	} {
		for kind, sharded := range map[string]bool{"client": false, "proxy": true} {
			t.Run(name+", "+kind, func(t *testing.T) {
				addr := redistest.StartAnswering(t, srv.Addr, func(args []string) string {
					if slices.Contains(c.refused, strings.ToLower(args[0])) {
						return c.answer
					}
					return ""
				})
				client := redis.NewClient(algorithms.FailFast(&redis.Options{Addr: addr, DialTimeout: roomy, ReadTimeout: roomy, PoolTimeout: roomy}))
				defer client.Close()
				err := storeOf(&algorithms.Redis{Client: client, Namespace: "test", Sharded: sharded}).Warm(t.Context())
				if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
					t.Errorf("%v; want %q", err, c.says)
				}
				if advised := err != nil && strings.Contains(err.Error(), "must permit EVALSHA"); advised != (err != nil && name != "a replica") {
					t.Errorf("%v: advised %v", err, advised)
				}
			})
		}
	}
}

// A client for one server at a node of a cluster is told so at the start, and with the
// first decision that fails. Redis.Sharded is no cure: the client does not follow MOVED.
func TestAClientOfOneServerAtAClusterNode(t *testing.T) {
	cluster := redistest.StartCluster(t)
	const advice = "use redis.NewClusterClient"
	for _, sharded := range []bool{false, true} {
		client := cluster.Masters[0].Client(t)
		r := &algorithms.Redis{Client: client, Namespace: "test", Budget: roomy, Sharded: sharded}
		if err := storeOf(r).Warm(t.Context()); err == nil || !strings.Contains(err.Error(), advice) {
			t.Errorf("sharded %v: %v", sharded, err)
		}
		told := 0
		for _, c := range keysEverywhere("r") {
			if _, err := r.Take(t.Context(), c); err != nil {
				if told++; !strings.Contains(err.Error(), advice) {
					t.Errorf("sharded %v: %v", sharded, err)
				}
			}
		}
		if _, err := r.Take(t.Context(), keysEverywhere("two")[:2]...); !sharded && (err == nil || !strings.Contains(err.Error(), advice)) {
			t.Errorf("two keys: %v", err)
		}
		if told == 0 {
			t.Error("all keys were on one of three masters")
		}
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs})
	defer client.Close()
	if err := storeOf(&algorithms.Redis{Client: client, Namespace: "test"}).Warm(t.Context()); err != nil {
		t.Errorf("a client for clusters: %v", err)
	}
}

// Connections that are made in the background end with the client, which the caller
// closes.
func TestConnectingEndsWithTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := redis.NewClient(algorithms.FailFast(&redis.Options{Dialer: func(context.Context, string, string) (net.Conn, error) {
			here, silent := net.Pipe()
			t.Cleanup(func() { _ = silent.Close() })
			go func() { _, _ = io.Copy(io.Discard, silent) }()
			return here, nil
		}}))
		r := &algorithms.Redis{Client: client, Namespace: "test"}
		if err := taken(r, "r", "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		connecting := func() int {
			synctest.Wait()
			return transportOf(r).Connecting()
		}
		if connecting() == 0 {
			t.Error("no connection is made in the background")
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		if connecting() != 0 {
			t.Error("a connection is still being made")
		}
	})
}
