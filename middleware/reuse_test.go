package middleware_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/headers"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// A Memory and a Guard write denials over those that nobody keeps. What a program has seen stays as it was,
// whatever is denied later.
func TestDenialsThatAProgramHasSeenStay(t *testing.T) {
	for name, see := range map[string]func(c *ratelimit.Config, see func(algorithms.Decision)) func(m *ratelimit.Middleware, r *http.Request){
		"Observe": func(c *ratelimit.Config, see func(algorithms.Decision)) func(*ratelimit.Middleware, *http.Request) {
			c.Observe = func(_ *http.Request, d algorithms.Decision) { see(d) }
			return nil
		},
		"Denied": func(c *ratelimit.Config, see func(algorithms.Decision)) func(*ratelimit.Middleware, *http.Request) {
			c.Denied = func(w http.ResponseWriter, r *http.Request, d algorithms.Decision) {
				see(d)
				own, _ := ratelimit.FromContext(r.Context())
				see(own)
				headers.Deny(w, r, d)
			}
			return nil
		},
		"Headers": func(c *ratelimit.Config, see func(algorithms.Decision)) func(*ratelimit.Middleware, *http.Request) {
			c.Headers = func(_ http.Header, d algorithms.Decision) { see(d) }
			return nil
		},
		"a limiter around": func(*ratelimit.Config, func(algorithms.Decision)) func(*ratelimit.Middleware, *http.Request) {
			return nil
		},
		"Take": func(_ *ratelimit.Config, see func(algorithms.Decision)) func(*ratelimit.Middleware, *http.Request) {
			return func(m *ratelimit.Middleware, r *http.Request) {
				d, err := m.Take(r)
				if err != nil {
					t.Error(err)
				}
				see(d)
			}
		},
		"Peek": func(_ *ratelimit.Config, see func(algorithms.Decision)) func(*ratelimit.Middleware, *http.Request) {
			return func(m *ratelimit.Middleware, r *http.Request) {
				d, err := m.Peek(r)
				if err != nil {
					t.Error(err)
				}
				see(d)
			}
		},
	} {
		for store, made := range map[string]func(around func(algorithms.Limiter) algorithms.Limiter) algorithms.Limiter{
			"memory": func(around func(algorithms.Limiter) algorithms.Limiter) algorithms.Limiter {
				return around(new(algorithms.Memory))
			},
			"redis": func(around func(algorithms.Limiter) algorithms.Limiter) algorithms.Limiter {
				client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
				t.Cleanup(func() { _ = client.Close() })
				return guard(t, around(&algorithms.Redis{Client: client, Namespace: "test", Budget: 10 * time.Second}), 1)
			},
		} {
			t.Run(store+"/"+name, func(t *testing.T) {
				type decision struct {
					d  algorithms.Decision
					as string
				}
				var kept []decision
				keep := func(d algorithms.Decision) {
					if !d.Allowed {
						kept = append(kept, decision{d, fmt.Sprintf("%+v", d)})
					}
				}
				around := func(l algorithms.Limiter) algorithms.Limiter { return l }
				if name == "a limiter around" {
					around = func(l algorithms.Limiter) algorithms.Limiter { return seen{l, keep} }
				}
				others := ratelimit.Config{Limiter: made(around), Rules: []ratelimit.Rule{
					perHour("a", 1), {Name: "b", Key: keyfunc.Header("Client"), Limit: algorithms.PerHour(1), Shadow: store == "memory"}, perHour("c", 5),
				}}
				own := others
				by := see(&own, keep)
				m, flood := mustNew(t, own), mustNew(t, others).Handler(http.NotFoundHandler())
				h := m.Handler(http.NotFoundHandler())
				for i := range 60 {
					if client := fmt.Sprint(i % 7); by != nil && i > 0 {
						by(m, request("GET /", "Client", client))
					} else {
						serve(h, "GET /", "Client", client)
					}
					serve(flood, "GET /", "Client", fmt.Sprint("other ", i%5))
				}
				if len(kept) < 1 || len(kept) < 50 && (store == "memory" || name != "a limiter around") {
					t.Fatalf("saw %d denials", len(kept))
				}
				for _, k := range kept {
					if now := fmt.Sprintf("%+v", k.d); now != k.as {
						t.Fatalf("a denial was\n%s\nand is\n%s", k.as, now)
					}
				}
			})
		}
	}
}

// seen shows the decisions of a limiter.
type seen struct {
	algorithms.Limiter
	see func(algorithms.Decision)
}

func (s seen) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	d, err := s.Limiter.Take(ctx, checks...)
	s.see(d)
	return d, err
}

func (s seen) Unwrap() algorithms.Limiter { return s.Limiter }
