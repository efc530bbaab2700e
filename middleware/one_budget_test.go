package middleware_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/internal/redistest"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// A distantClient is a client whose server is far away. In a bubble, its commands take as
// long as it says, and no more.
type distantClient struct {
	*redis.Client
	away time.Duration
}

func (c distantClient) Process(ctx context.Context, cmd redis.Cmder) error {
	time.Sleep(c.away)
	return c.Client.Process(context.WithoutCancel(ctx), cmd)
}

const budget = 50 * time.Millisecond

// distant is a Guard of a Redis that is far away and empty. It ends with what it has left behind.
func distant(t *testing.T, client *redis.Client, away time.Duration) *failmode.Guard {
	client.FlushAll(t.Context())
	g := &failmode.Guard{Limiter: &algorithms.Redis{Client: distantClient{client, away}, Namespace: "test", Budget: budget}, Instances: 1, Logger: slog.New(slog.DiscardHandler)}
	t.Cleanup(func() {
		_ = g.Close()
		time.Sleep(time.Second)
	})
	return g
}

// lateBody is a body that arrives after a while.
type lateBody struct {
	io.Reader
	after time.Duration
}

func (b lateBody) Read(p []byte) (int, error) {
	time.Sleep(b.after)
	return b.Reader.Read(p)
}

// All that a request waits for decisions is within one budget: for other requests, for
// Redis, and in chained middlewares. The time that its body takes does not count.
func TestARequestWaitsOneBudget(t *testing.T) {
	srv := redistest.Start(t)
	one := func(r ratelimit.Rule) [][]ratelimit.Rule { return [][]ratelimit.Rule{{r}} }
	refills := ratelimit.Rule{Name: "refills", Key: keyfunc.IP, Limit: algorithms.Limit{Rate: 40, Period: time.Second, Burst: 1, Algorithm: algorithms.TokenBucket}}
	login := ratelimit.Rule{Name: "login", Key: keyfunc.IP, Limit: algorithms.PerHour(100), ChargeOn: []int{401}}
	plain := ratelimit.Rule{Name: "plain", Key: keyfunc.IP, Limit: algorithms.PerHour(100)}
	byBody := ratelimit.Rule{Name: "body", Key: keyfunc.BodyJSON("user", 1000), Limit: algorithms.PerHour(100)}
	for name, c := range map[string]struct {
		chain    [][]ratelimit.Rule // rules of middlewares, the outermost first
		away     time.Duration
		requests int // at once
		body     time.Duration
		byRedis  bool // all rules of all requests
	}{
		"known to be denied, near":     {one(refills), 15 * time.Millisecond, 8, 0, false},
		"known to be denied, far":      {one(refills), 35 * time.Millisecond, 8, 0, false},
		"known to be denied, too far":  {one(refills), 45 * time.Millisecond, 8, 0, false},
		"logins, near":                 {one(login), 15 * time.Millisecond, 4, 0, true},
		"logins, far":                  {one(login), 45 * time.Millisecond, 4, 0, false},
		"chained, near":                {[][]ratelimit.Rule{{plain}, {login}}, 15 * time.Millisecond, 1, 0, true},
		"chained, far":                 {[][]ratelimit.Rule{{plain}, {login}}, 35 * time.Millisecond, 1, 0, false},
		"chained logins":               {[][]ratelimit.Rule{{login}, {login}, {plain}}, 25 * time.Millisecond, 8, 0, false},
		"a slow body":                  {[][]ratelimit.Rule{{plain}, {byBody}}, 15 * time.Millisecond, 1, time.Second, true},
		"a slow body in one of a pair": {[][]ratelimit.Rule{{plain, byBody}}, 15 * time.Millisecond, 1, time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := distant(t, srv.Client(t), c.away)
				var others atomic.Int64 // rules that others than Redis decided
				handler := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					d, _ := ratelimit.FromContext(r.Context())
					for _, res := range d.Results {
						if res.Source != algorithms.SourceRedis {
							others.Add(1)
						}
					}
					w.WriteHeader(http.StatusUnauthorized)
				}))
				for i := len(c.chain) - 1; i >= 0; i-- {
					handler = mustNew(t, ratelimit.Config{Limiter: g, Rules: c.chain[i]}).Handler(handler)
				}
				send := func() {
					r := httptest.NewRequest(http.MethodPost, "/", lateBody{strings.NewReader(`{"user":"ada"}`), c.body})
					r.Header.Set("Content-Type", "application/json")
					begun := time.Now()
					handler.ServeHTTP(httptest.NewRecorder(), r)
					if took := time.Since(begun); took > budget+2*c.body {
						t.Errorf("a request waited %s", took)
					}
				}
				for range 3 { // for knowing a denial
					send()
				}
				time.Sleep(100 * time.Millisecond)
				others.Store(0)
				var all sync.WaitGroup
				for range c.requests {
					all.Go(send)
				}
				all.Wait()
				if c.byRedis && others.Load() > 0 {
					t.Errorf("%d rules were not decided by Redis", others.Load())
				}
			})
		})
	}
}

// Add has a budget of its own, each time, however long the request has waited before.
func TestAddHasABudgetOfItsOwn(t *testing.T) {
	const away, adds = 35 * time.Millisecond, 10
	srv := redistest.Start(t)
	synctest.Test(t, func(t *testing.T) {
		g := distant(t, srv.Client(t), away)
		handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			for range adds {
				begun := time.Now()
				if err := ratelimit.Add(r.Context(), "r", 1); err != nil {
					t.Error(err)
				}
				if took := time.Since(begun); took > budget {
					t.Errorf("took %s", took)
				}
			}
		})
		rule := ratelimit.Rule{Name: "r", Key: keyfunc.IP, Limit: algorithms.PerHour(100)}
		serve(mustNew(t, ratelimit.Config{Limiter: g, Rules: []ratelimit.Rule{rule}}).Handler(handler), "POST /")
	})
	check := algorithms.Check{Rule: "r", Key: "192.0.2.1", Limit: algorithms.PerHour(100)}
	d, err := (&algorithms.Redis{Client: srv.Client(t), Namespace: "test"}).Peek(t.Context(), check)
	if err != nil || 100-d.Results[0].Remaining < adds {
		t.Errorf("Redis has counted %d units, want at least the %d of Add; %v", 100-d.Results[0].Remaining, adds, err)
	}
}
