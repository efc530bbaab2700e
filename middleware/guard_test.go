package middleware_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/internal/redistest"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// guardOf is a Guard around a Redis with room for a busy machine.
func guardOf(t *testing.T, client algorithms.Client) *failmode.Guard {
	t.Helper()
	guard := &failmode.Guard{
		Limiter: &algorithms.Redis{Client: client, Namespace: "shop", Budget: 5 * time.Second},
		Logger:  slog.New(slog.DiscardHandler),
	}
	t.Cleanup(func() {
		if err := guard.Close(); err != nil {
			t.Error(err)
		}
	})
	return guard
}

func TestAGuardServesThroughAnOutage(t *testing.T) {
	srv := redistest.Start(t)
	guard := guardOf(t, srv.Client(t))
	open, closed, local := perHour("open", 1000, "/open"), perHour("closed", 1000, "/closed"), perHour("local", 2, "/local")
	open.Fail, closed.Fail = failmode.Open, failmode.Closed
	m := mustNew(t, ratelimit.Config{Limiter: guard, Rules: []ratelimit.Rule{open, closed, local}})
	h := m.Handler(ok)

	statuses := func(path string, n int) (codes []int) {
		for range n {
			codes = append(codes, serve(h, "GET "+path).Code)
		}
		return codes
	}
	check := func(when string, want map[string]string) {
		t.Helper()
		for path, codes := range want {
			if got := fmt.Sprint(statuses(path, 3)); got != codes {
				t.Errorf("%s: %s answered %s, want %s", when, path, got, codes)
			}
		}
	}
	check("before", map[string]string{"/open": "[204 204 204]", "/closed": "[204 204 204]", "/local": "[204 204 429]"})
	srv.Stop(t)
	// What this process has limited stays limited.
	check("during", map[string]string{"/open": "[204 204 204]", "/closed": "[503 503 503]", "/local": "[429 429 429]"})
	if down := guard.Down(); len(down) != 1 || down[0] != srv.Addr {
		t.Errorf("down: %q", down)
	}
	if w := serve(h, "GET /closed"); w.Header().Get("Retry-After") == "" {
		t.Errorf("503 without Retry-After: %v", w.Header())
	}
	srv.Restart(t)
	for serve(h, "GET /closed").Code != http.StatusNoContent {
		if t.Context().Err() != nil {
			t.Fatal("never counted again")
		}
	}
	check("after", map[string]string{"/open": "[204 204 204]", "/closed": "[204 204 204]"})
	for serve(h, "GET /local").Code != http.StatusNoContent { // Redis has forgotten it; the guard asks within a second
		if t.Context().Err() != nil {
			t.Fatal("denied for ever")
		}
	}
	check("then", map[string]string{"/local": "[204 429 429]"})
}

// Processes that share a Redis count each other, and divide the limits while it
// is away.
func TestGuardsCountInstances(t *testing.T) {
	srv := redistest.Start(t)
	before, check := algorithms.Check{Rule: "before", Limit: algorithms.PerHour(30)}, algorithms.Check{Rule: "r", Limit: algorithms.PerHour(30)}
	rdb := srv.Client(t)
	var limiters []*failmode.Guard
	for range 3 {
		o := srv.Options()
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) { // as if in a process of its own
			return new(net.Dialer).DialContext(ctx, network, addr)
		}
		client := redis.NewClient(o)
		t.Cleanup(func() { _ = client.Close() })
		l := guardOf(t, client)
		if _, err := l.Take(t.Context(), before); err != nil {
			t.Fatal(err)
		}
		limiters = append(limiters, l)
		for deadline := time.Now().Add(10 * time.Second); rdb.ZCard(t.Context(), "shop:instances").Val() != int64(len(limiters)); {
			if time.Now().After(deadline) {
				t.Fatal("not counted")
			}
		}
	}
	srv.Stop(t)
	admitted := 0 // by the last one to come, which has counted all
	for range 40 {
		if d, err := limiters[2].Take(t.Context(), check); err != nil {
			t.Fatal(err)
		} else if d.Allowed {
			admitted++
		}
	}
	if admitted != 10 {
		t.Errorf("%d admitted, want its share of 10", admitted)
	}
}

// A Guard that was never validated says so, instead of counting locally.
func TestAGuardThatIsNotSetUp(t *testing.T) {
	guard := guardOf(t, (*redis.Client)(nil))
	for range 10 {
		_, err := guard.Take(t.Context(), algorithms.Check{Rule: "r", Limit: algorithms.PerHour(1)})
		if err == nil || !strings.Contains(err.Error(), "client: required, got nil") {
			t.Fatalf("got %v", err)
		}
	}
}
