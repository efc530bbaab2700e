package transport_test

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/redistest"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// Probes have one connection, which nothing else uses and which stays until it fails, and
// need whatever a rule may need.
func TestAsk(t *testing.T) {
	srv := redistest.Start(t)
	admin := srv.Client(t)
	do := func(args ...any) {
		t.Helper()
		if err := admin.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(args, err)
		}
	}
	do("ACL", "SETUSER", "limiter", "on", ">old", "~*", "+@all")
	client := redis.NewClient(algorithms.FailFast(&redis.Options{Addr: srv.Addr, Username: "limiter", Password: "old", DialTimeout: roomy, ReadTimeout: roomy}))
	defer client.Close()
	r := &algorithms.Redis{Client: client, Namespace: "test", Budget: roomy}
	accepted := func() string {
		t.Helper()
		info := admin.Info(t.Context(), "stats").Val()
		_, n, _ := strings.Cut(info, "total_connections_received:")
		return strings.Fields(n)[0]
	}
	ask := func(anew bool, want transport.ErrorClass) {
		t.Helper()
		if err := storeOf(r).Ask(t.Context(), 0, anew); transport.ClassOf(err) != want {
			t.Errorf("anew %v: %v; want %q", anew, err, want)
		}
	}
	ask(true, "")
	n := accepted()
	for range 3 {
		ask(false, "")
	}
	do("SCRIPT", "FLUSH")
	ask(false, "")
	for _, command := range []string{"set", "rpush", "hset"} { // for a string, a list and a hash
		do("ACL", "SETUSER", "limiter", "-"+command)
		ask(false, transport.ClassRefused)
		do("ACL", "SETUSER", "limiter", "+@all")
	}
	do("ACL", "SETUSER", "limiter", "-mget") // without which decisions are sent alone
	ask(false, "")
	do("ACL", "SETUSER", "limiter", "+@all", "resetpass", ">new")
	ask(false, "")
	if now := accepted(); now != n || client.PoolStats().TotalConns > 0 {
		t.Errorf("%s connections, want %s; %d are the client's", now, n, client.PoolStats().TotalConns)
	}
	ask(true, transport.ClassRefused)
	do("ACL", "SETUSER", "limiter", "resetpass", ">old")
	ask(true, "")
	do("CLIENT", "KILL", "USER", "limiter")
	ask(false, transport.ClassConnection)
	ask(true, "")
	storeOf(r).HangUp()
	ask(true, transport.ClassBusy)
	if open := admin.ClientList(t.Context()).Val(); strings.Contains(open, "user=limiter") {
		t.Errorf("still open:\n%s", open)
	}
	wrapped := &algorithms.Redis{Client: struct{ algorithms.Client }{client}, Namespace: "test"}
	if err := storeOf(wrapped).Ask(t.Context(), 0, true); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a wrapped client: %v", err)
	}
}

// A Dialer of the user's own may give up sooner than a busy process takes to connect.
func TestAskWithAHastyDialer(t *testing.T) {
	srv := redistest.Start(t)
	var hasty atomic.Int64
	client := redis.NewClient(algorithms.FailFast(&redis.Options{Addr: srv.Addr, Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if hasty.Add(1) <= 3 {
			return nil, os.ErrDeadlineExceeded
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}}))
	defer client.Close()
	if err := storeOf(&algorithms.Redis{Client: client, Namespace: "test", Budget: roomy}).Ask(t.Context(), 0, true); err != nil {
		t.Error(err)
	}
}
