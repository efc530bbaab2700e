package recipes

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/algorithms/limitertest"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
	"github.com/seed75154129/ratelimit/middleware/shed"
)

// A mute connection loses what is written to it while its server hangs.
type mute struct {
	net.Conn
	hangs *atomic.Bool
}

func (c mute) Write(p []byte) (int, error) {
	if c.hangs.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// A layer puts a recipe around a handler.
type layer func(t *testing.T, limiter algorithms.Limiter, next http.Handler) http.Handler

// ruled are layers of all requests, for recipes that are rules.
func ruled(rules ...ratelimit.Rule) layer {
	for i := range rules {
		rules[i].Match = nil
	}
	return func(t *testing.T, limiter algorithms.Limiter, next http.Handler) http.Handler {
		return made(t)(ratelimit.New(ratelimit.Config{Limiter: limiter, Rules: rules, Logger: slog.New(slog.DiscardHandler)})).Handler(next)
	}
}

// Whatever recipes are in front of a handler, alone, two of them in any order or all in one
// middleware, a request waits for a Redis that hangs no longer than one budget in all.
func TestRecipesWaitOneBudget(t *testing.T) {
	const budget = 500 * time.Millisecond
	export, _ := exports(keyfunc.IP, func(context.Context) {})
	graph, _ := graphQL(nil)
	free := func(context.Context) string { return "free" }
	recipes := map[string][]ratelimit.Rule{
		"logins": logins(keyfunc.IP), "expensive": expensive(keyfunc.IP), "graphQL": {graph}, "exports": export, "sockets": sockets(keyfunc.IP),
		"tools": tools(), "migrated": migrated(keyfunc.IP, keyfunc.IP), "batches": {batches(keyfunc.IP, new(shed.Shedder))},
	}
	layers := map[string]layer{
		"plans": func(t *testing.T, limiter algorithms.Limiter, next http.Handler) http.Handler {
			return made(t)(plans(limiter, priceList(t), free)).Handler(next)
		},
		"fairShares": func(t *testing.T, limiter algorithms.Limiter, next http.Handler) http.Handler {
			return made(t)(fairShares(limiter, keyfunc.IP)).Handler(next)
		},
		"shop": func(t *testing.T, limiter algorithms.Limiter, next http.Handler) http.Handler {
			return shop(made(t)(plans(limiter, priceList(t), free)), next, free)
		},
		"completions": func(t *testing.T, limiter algorithms.Limiter, next http.Handler) http.Handler {
			h, err := completions(ratelimit.Config{Limiter: limiter}, keyfunc.IP, func(r *http.Request) (iter.Seq[chunk], error) {
				next.ServeHTTP(httptest.NewRecorder(), r)
				return nil, errors.New("no answer")
			})
			if err != nil {
				t.Fatal(err)
			}
			return h
		},
	}
	var all []ratelimit.Rule
	for name, rules := range recipes {
		layers[name], all = ruled(rules...), append(all, rules...)
	}
	chains := map[string][]layer{"all rules": {ruled(all...)}}
	for name, outer := range layers {
		chains[name] = []layer{outer}
		for other, inner := range layers {
			chains[name+", "+other] = []layer{outer, inner}
		}
	}

	server, hangs := limitertest.Redis(t), new(atomic.Bool)
	hung, sending, closing := make(chan struct{}), sync.WaitGroup{}, []func(){}
	for name, chain := range chains {
		options := *server.Options()
		options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := server.Options().Dialer(ctx, network, addr)
			return mute{conn, hangs}, err
		}
		client := redis.NewClient(algorithms.FailFast(&options))
		t.Cleanup(func() { _ = client.Close() })
		guard := &failmode.Guard{Limiter: &algorithms.Redis{Client: client, Namespace: "app", Budget: budget}, Instances: 1, Logger: slog.New(slog.DiscardHandler)}
		closing = append(closing, func() { _ = guard.Close() })
		if err := guard.Warm(t.Context()); err != nil {
			t.Fatal(err)
		}
		handler := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Context().Value(contextKey("reached")).(func())()
			w.WriteHeader(http.StatusUnauthorized)
		}))
		for _, layer := range slices.Backward(chain) {
			handler = layer(t, guard, handler)
		}
		sending.Go(func() {
			<-hung
			begun, waited := time.Now(), time.Duration(0)
			reached := sync.OnceFunc(func() { waited = time.Since(begun) })
			r := httptest.NewRequest(http.MethodPost, "/v1/x", strings.NewReader(`{"email":"ada@example.com"}`))
			r.Header.Set("Authorization", "Bearer secret")
			r.Header.Set("Content-Type", "application/json")
			ctx := context.WithValue(context.WithValue(r.Context(), contextKey("reached"), reached), contextKey("tenant"), "acme")
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r.WithContext(ctx))
			reached() // or it was answered before
			if waited < budget/2 || waited > budget*3/2 {
				t.Errorf("%s: a request waited %s, and was answered %d", name, waited, w.Code)
			}
		})
	}
	hangs.Store(true)
	close(hung)
	sending.Wait()
	hangs.Store(false)
	for _, end := range closing { // each waits for the server
		sending.Go(end)
	}
	sending.Wait()
}
