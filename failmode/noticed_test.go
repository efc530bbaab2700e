package failmode_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/internal/redistest"
)

// Five decisions in a row open the circuit of a server that is gone or hangs, with every
// kind of client.
func TestFiveDecisionsNoticeAnOutage(t *testing.T) {
	kinds := map[string]func(t *testing.T) (redis.UniversalClient, []*redistest.Server){
		"client": func(t *testing.T) (redis.UniversalClient, []*redistest.Server) {
			srv := redistest.Start(t)
			return redis.NewClient(algorithms.FailFast(&redis.Options{Addr: srv.Addr})), []*redistest.Server{srv}
		},
		"sentinel": func(t *testing.T) (redis.UniversalClient, []*redistest.Server) {
			group := redistest.StartSentinel(t)
			return redis.NewFailoverClient(algorithms.FailFast(group.Options())), []*redistest.Server{group.Master}
		},
		"cluster": func(t *testing.T) (redis.UniversalClient, []*redistest.Server) {
			cluster := redistest.StartCluster(t)
			return redis.NewClusterClient(algorithms.FailFast(&redis.ClusterOptions{Addrs: cluster.Addrs})), cluster.Masters
		},
		"ring": func(t *testing.T) (redis.UniversalClient, []*redistest.Server) {
			srv := redistest.Start(t)
			return redis.NewRing(algorithms.FailFast(&redis.RingOptions{Addrs: map[string]string{"a": srv.Addr}})), []*redistest.Server{srv}
		},
	}
	for kind, start := range kinds {
		for how, end := range map[string]func(*redistest.Server, *testing.T){
			"gone":  func(s *redistest.Server, t *testing.T) { s.Stop(t) },
			"hangs": func(s *redistest.Server, t *testing.T) { s.Pause(t) },
		} {
			t.Run(kind+", "+how, func(t *testing.T) {
				t.Parallel()
				client, servers := start(t)
				defer client.Close()
				g := &failmode.Guard{Limiter: &algorithms.Redis{Client: client, Namespace: "test"}, Instances: 1, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
				defer g.Close()
				if err := g.Warm(t.Context()); err != nil {
					t.Fatal(err)
				}
				until(t, "Redis decides", func() bool { return decided(t, g) == algorithms.SourceRedis })
				for _, s := range servers {
					end(s, t)
				}
				for tries := 0; openShards(g) == 0; tries++ {
					if tries == 5 { // a busy process blames nobody, and asks again
						t.Fatal("five decisions did not open the circuit")
					}
					for range 5 {
						if s := decided(t, g); tries > 0 && s == algorithms.SourceRedis {
							return // a replica has taken over, and a probe has found it
						}
					}
					for begun := time.Now(); openShards(g) == 0 && time.Since(begun) < 3*time.Second; time.Sleep(time.Millisecond) {
					}
				}
			})
		}
	}
}

// Where new connections fail and those that are open do not, one that breaks is no outage.
func TestNewConnectionsThatFail(t *testing.T) {
	for name, commands := range map[string][]any{
		"too many clients":     {"CONFIG", "SET", "maxclients", 1},
		"the password changes": {"ACL", "SETUSER", "limiter", "resetpass", ">new"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			admin := srv.Client(t)
			if err := admin.Do(t.Context(), "ACL", "SETUSER", "limiter", "on", ">old", "~*", "&*", "+@all").Err(); err != nil {
				t.Fatal(err)
			}
			proxy := redistest.StartProxy(t, srv.Addr)
			client := redis.NewClient(algorithms.FailFast(&redis.Options{Addr: proxy.Addr, Username: "limiter", Password: "old", MinIdleConns: 5}))
			defer client.Close()
			g := &failmode.Guard{Limiter: &algorithms.Redis{Client: client, Namespace: "test", Budget: time.Second}, Instances: 1, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
			defer g.Close()
			if err := g.Warm(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := admin.Do(t.Context(), commands...).Err(); err != nil {
				t.Fatal(err)
			}
			proxy.LoseReplies(1, "evalsha")
			if s := decided(t, g); s == algorithms.SourceRedis {
				t.Fatal("no reply was lost")
			}
			for range 20 {
				if s := decided(t, g); s != algorithms.SourceRedis || openShards(g) > 0 {
					t.Errorf("decided by %s; %d circuits are open", s, openShards(g))
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
}

// A server that is well for the keys of probes, and for no other, is away.
func TestErrorsForAllKeysButThoseOfProbes(t *testing.T) {
	srv := redistest.Start(t)
	admin := srv.Client(t)
	log := new(strings.Builder)
	client := redis.NewClient(algorithms.FailFast(&redis.Options{Addr: srv.Addr, Username: "limiter", Password: "secret"}))
	defer client.Close()
	g := &failmode.Guard{Limiter: &algorithms.Redis{Client: client, Namespace: "test", Budget: time.Second}, Instances: 1, Logger: slog.New(slog.NewTextHandler(log, nil))}
	if err := admin.Do(t.Context(), "ACL", "SETUSER", "limiter", "on", ">secret", "~test:{#}*", "+@all").Err(); err != nil {
		t.Fatal(err)
	}
	if err := g.Warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	n := 0
	until(t, "the circuit is open", func() bool {
		n++
		_, err := g.Take(t.Context(), algorithms.Check{Rule: "r", Key: fmt.Sprint(n), Limit: algorithms.PerHour(5)})
		if err != nil {
			t.Fatal(err)
		}
		return openShards(g) == 1
	})
	if n < 20 {
		t.Errorf("after %d decisions, want at least 20", n)
	}
	if err := g.Close(); err != nil || !strings.Contains(log.String(), `msg="ratelimit: circuit open"`) || !strings.Contains(log.String(), "NOPERM") {
		t.Errorf("%v; logged:\n%s", err, log)
	}
}
