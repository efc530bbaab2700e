package algorithms

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/internal/redistest"
)

func TestBeatCountsInstances(t *testing.T) {
	srv, clock := redistest.StartWithClock(t)
	r := &Redis{Client: srv.Client(t), Namespace: "test", Budget: roomy}
	const lease = 15 * time.Second
	beat := func(id string, lease time.Duration, want int) {
		t.Helper()
		if got, err := storeOf(r).Beat(t.Context(), id, lease); err != nil || got != want {
			t.Errorf("%s: %d instances, %v, want %d", id, got, err, want)
		}
	}
	beat("a", lease, 1)
	beat("b", lease, 2)
	beat("a", lease, 2)
	clock.Advance(lease - time.Millisecond)
	beat("c", lease, 3)
	clock.Advance(time.Millisecond)
	beat("c", lease, 1) // the others were not heard of for a lease
	beat("a", lease, 2)
	beat("a", 0, 1)
	beat("c", 0, 0)
	if n := srv.Client(t).Exists(t.Context(), "test:instances").Val(); n != 0 {
		t.Error("a key is left when all have gone")
	}

	clock.Advance(time.Hour)
	beat("a", lease, 1)
	clock.Advance(-time.Hour) // it was wrong: what it promised does not hold
	beat("b", lease, 1)
	clock.Advance(lease + time.Millisecond)
	if n := srv.Client(t).Exists(t.Context(), "test:instances").Val(); n != 0 {
		t.Error("a key is left when nobody beats")
	}
}

// All users of a namespace in a process are one instance.
func TestUsersOfOneNamespaceAreOneInstance(t *testing.T) {
	client := func(addr string, db int) *redis.Client {
		return redis.NewClient(&redis.Options{Addr: addr, DB: db})
	}
	dialed := func() *redis.Client {
		return redis.NewClient(&redis.Options{Addr: "a:1", Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed }})
	}
	cluster := func(addrs ...string) *redis.ClusterClient {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	}
	mine := dialed()
	type uncomparable struct {
		*redis.Client
		_ []int
	}
	for name, c := range map[string]struct {
		a, b *Redis
		same bool
	}{
		"one client":                    {&Redis{Client: mine, Namespace: "n"}, &Redis{Client: mine, Namespace: "n"}, true},
		"one client, wrapped":           {&Redis{Client: wrapped{}, Namespace: "n"}, &Redis{Client: wrapped{}, Namespace: "n"}, true},
		"two namespaces":                {&Redis{Client: mine, Namespace: "n"}, &Redis{Client: mine, Namespace: "m"}, false},
		"one address":                   {&Redis{Client: client("a:1", 0), Namespace: "n"}, &Redis{Client: client("a:1", 0), Namespace: "n"}, true},
		"two addresses":                 {&Redis{Client: client("a:1", 0), Namespace: "n"}, &Redis{Client: client("a:2", 0), Namespace: "n"}, false},
		"two databases":                 {&Redis{Client: client("a:1", 0), Namespace: "n"}, &Redis{Client: client("a:1", 1), Namespace: "n"}, false},
		"a Dialer that connects anyhow": {&Redis{Client: dialed(), Namespace: "n"}, &Redis{Client: dialed(), Namespace: "n"}, false},
		"one cluster":                   {&Redis{Client: cluster("a:1", "a:2"), Namespace: "n"}, &Redis{Client: cluster("a:2", "a:1"), Namespace: "n"}, true},
		"two clusters":                  {&Redis{Client: cluster("a:1", "a:2"), Namespace: "n"}, &Redis{Client: cluster("a:3"), Namespace: "n"}, false},
		"clients that do not compare":   {&Redis{Client: uncomparable{}, Namespace: "n"}, &Redis{Client: uncomparable{}, Namespace: "n"}, false},
	} {
		id, others := storeOf(c.a).Join()
		if others != 0 {
			t.Errorf("%s: the first finds %d others", name, others)
		}
		id2, others := storeOf(c.b).Join()
		if (id == id2) != c.same || (others == 1) != c.same {
			t.Errorf("%s: ids %q and %q, %d others; want the same: %v", name, id, id2, others, c.same)
		}
		if last := storeOf(c.b).Leave(); last == c.same {
			t.Errorf("%s: the second is the last to leave: %v", name, last)
		}
		if !storeOf(c.a).Leave() {
			t.Errorf("%s: nobody is left, and nobody was the last", name)
		}
		if storeOf(c.a).Leave() {
			t.Errorf("%s: left twice", name)
		}
	}
	if n := len(instances.joined); n != 0 {
		t.Errorf("%d instances are left", n)
	}
}

func TestServerWarnings(t *testing.T) {
	srv := redistest.Start(t)
	client := srv.Client(t)
	r := &Redis{Client: client, Namespace: "test", Budget: roomy}
	if warned, err := storeOf(r).ServerWarnings(t.Context()); err != nil || len(warned) > 0 {
		t.Errorf("noeviction: %q, %v", warned, err)
	}
	client.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru")
	warned, err := storeOf(r).ServerWarnings(t.Context())
	if err != nil || len(warned) != 1 || !strings.Contains(warned[0], srv.Addr+": maxmemory-policy is allkeys-lru") {
		t.Errorf("allkeys-lru: %q, %v", warned, err)
	}
	srv.Stop(t)
	if _, err := storeOf(r).ServerWarnings(t.Context()); err == nil {
		t.Error("no error from a server that is away")
	}
}
