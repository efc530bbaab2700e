package ratelimit_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit"
	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/redistest"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// Two limits in memory: the login is limited by both.
func ExampleNew() {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /login", func(http.ResponseWriter, *http.Request) {})
	limit, err := ratelimit.New(ratelimit.Config{
		Rules: []ratelimit.Rule{
			{Name: "per-ip", Key: keyfunc.IP, Limit: ratelimit.PerMinute(200)},
			{Name: "login", Match: []string{"POST /login"}, Key: keyfunc.IP, Limit: ratelimit.MustParse("5/1m sliding_log")},
		},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	handler := limit.Handler(mux)
	for range 6 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/login", nil))
		fmt.Print(w.Code, " ")
	}
	// Output: 200 200 200 200 200 429
}

var oneAnHour = []ratelimit.Rule{{Name: "one", Key: keyfunc.Everyone, Limit: ratelimit.MustParse("1/1h sliding_log"), Fail: ratelimit.FailClosed}}

func status(h http.Handler) int {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	return w.Code
}

// Processes with one namespace share their counts; with another they do not.
func TestRedisCountsForAllProcesses(t *testing.T) {
	server := redistest.Start(t)
	for _, step := range []struct {
		namespace string
		want      int
	}{{"shop", 200}, {"shop", 429}, {"blog", 200}} {
		options := &redis.Options{Addr: server.Addr}
		guard := ratelimit.Redis(options, step.namespace)
		limit, err := ratelimit.New(ratelimit.Config{Limiter: guard, Rules: oneAnHour})
		if err != nil {
			t.Fatal(err)
		}
		if got := status(limit.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))); got != step.want {
			t.Errorf("%s: %d, want %d", step.namespace, got, step.want)
		}
		if options.MaxRetries != 0 || options.ReadTimeout != 0 {
			t.Errorf("the caller's options were changed: %+v", options)
		}
		if err := guard.Close(); err != nil {
			t.Error(err)
		}
		client := guard.Limiter.(*algorithms.Redis).Client.(*redis.Client)
		if err := client.Ping(t.Context()).Err(); err == nil || !strings.Contains(err.Error(), "closed") {
			t.Errorf("after Close, the client answers %v", err)
		}
	}
}

// New connects a Guard before the first request, and does not wait for it: without a
// server, the program starts, the log says so, and requests follow their fail modes until
// there is one.
func TestRedisConnectsInTheBackground(t *testing.T) {
	server := miniredis.RunT(t)
	start := func(addr string, log *logged) http.Handler {
		guard := ratelimit.Redis(&redis.Options{Addr: addr}, "shop")
		guard.Logger = slog.New(slog.NewTextHandler(log, nil))
		t.Cleanup(func() { _ = guard.Close() })
		limit, err := ratelimit.New(ratelimit.Config{Limiter: guard, Rules: oneAnHour})
		if err != nil {
			t.Fatal(err)
		}
		return limit.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	}
	start(server.Addr(), new(logged))
	until(t, "a connection before the first request", func() bool { return server.TotalConnectionCount() > 0 })

	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := nobody.Addr().String()
	_ = nobody.Close()
	var log logged
	handler := start(addr, &log)
	until(t, "the line that Redis is not ready", func() bool { return strings.Contains(log.String(), "Redis is not ready") })
	if got := status(handler); got != http.StatusServiceUnavailable {
		t.Errorf("without Redis: %d", got)
	}
	late := miniredis.NewMiniRedis()
	if err := late.StartAddr(addr); err != nil {
		t.Skipf("the port is taken: %v", err)
	}
	t.Cleanup(late.Close)
	until(t, "a decision by Redis", func() bool { return status(handler) == http.StatusOK })
}

// A Guard that was closed before its first use leaves nothing behind, and neither does one
// that cannot work.
func TestRedisThatIsNeverUsed(t *testing.T) {
	for _, guard := range []interface{ Close() error }{
		ratelimit.Redis(&redis.Options{Addr: "127.0.0.1:1"}, "shop"),
		ratelimit.Redis(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}}, "not a namespace"),
		ratelimit.Redis(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}}, "shop"),
		ratelimit.Redis(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}}, "shop"),
		ratelimit.Redis[redis.Options](nil, "shop"),
	} {
		if err := guard.Close(); err != nil {
			t.Error(err)
		}
		if err := guard.Close(); err != nil {
			t.Errorf("closed again: %v", err)
		}
	}
}

func TestMustParse(t *testing.T) {
	defer func() {
		if text := fmt.Sprint(recover()); !strings.HasPrefix(text, `ratelimit: limit "5 per minute"`) {
			t.Error(text)
		}
	}()
	ratelimit.MustParse("5 per minute")
}

// until polls for a condition.
func until(t *testing.T, what string, met func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for !met() {
		select {
		case <-ctx.Done():
			t.Fatalf("there was never %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// logged is a log that goroutines may write.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}
