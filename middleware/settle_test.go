package middleware_test

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// GraphQL: ten points per minute, known afterwards. After a query of 30 the next
// is admitted when the debt is paid, and Retry-After says when.
func TestSettleIntoDebt(t *testing.T) {
	for name, limiter := range limiters {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := mustNew(t, ratelimit.Config{Limiter: limiter(t), Rules: []ratelimit.Rule{
					perHour("requests", 600), {Name: "graphql", Key: keyfunc.IP, Limit: bucket(10)},
				}})
				cost := int64(30)
				h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if err := ratelimit.Settle(r.Context(), "graphql", cost); err != nil {
						t.Error(err)
					}
					w.WriteHeader(http.StatusNoContent)
				}))
				if w := serve(h, "POST /graphql"); w.Code != 204 || w.Header().Get("X-RateLimit-Remaining") != "9" {
					t.Errorf("%d %v", w.Code, w.Header())
				}
				if w := serve(h, "POST /graphql"); w.Code != 429 || w.Header().Get("Retry-After") != "126" {
					t.Errorf("%d %v", w.Code, w.Header())
				}
				time.Sleep(126*time.Second - time.Millisecond) // takes no time
				if w := serve(h, "POST /graphql"); w.Code != 429 {
					t.Errorf("a millisecond before: %d", w.Code)
				}
				time.Sleep(time.Millisecond)
				cost = 0
				if w := serve(h, "POST /graphql"); w.Code != 204 || w.Header().Get("X-RateLimit-Remaining") != "0" {
					t.Errorf("126 s later: %d %v", w.Code, w.Header())
				}
			})
		})
	}
}

// within serves one request by a middleware and returns what settle returned.
func within(t testing.TB, m *ratelimit.Middleware, settle func(context.Context, http.ResponseWriter) error) (err error) {
	t.Helper()
	called := false
	m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		called = true
		err = settle(r.Context(), w)
	})).ServeHTTP(httptest.NewRecorder(), request("POST /"))
	if !called {
		t.Fatal("denied")
	}
	return err
}

// A spy counts the calls of a limiter, and fails to settle some rules.
type spy struct {
	algorithms.Limiter
	takes, settles, peeks atomic.Int64
	fails                 string // the rule that it cannot settle
	mute                  bool   // it settles nothing, and says nothing
}

func (l *spy) Unwrap() algorithms.Limiter { return l.Limiter }

func (l *spy) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	l.takes.Add(1)
	return l.Limiter.Take(ctx, checks...)
}

func (l *spy) Peek(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	l.peeks.Add(1)
	return l.Limiter.Peek(ctx, checks...)
}

func (l *spy) Settle(ctx context.Context, charges ...algorithms.Charge) ([]algorithms.Result, error) {
	l.settles.Add(1)
	if l.mute {
		return nil, nil
	}
	charges = slices.Clone(charges)
	var err error
	for i := range charges {
		if charges[i].Result.Check.Rule == l.fails {
			charges[i].Cost, err = charges[i].Result.Charged, redis.ErrClosed
		}
	}
	results, settleErr := l.Limiter.Settle(ctx, charges...)
	return results, errors.Join(err, settleErr)
}

// A hijackable recorder hands over a connection. Like a handler, it may still set headers.
type hijackable struct{ *httptest.ResponseRecorder }

func (h hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	h.Header().Set("Upgrade", "test")
	client, server := net.Pipe()
	return server, nil, client.Close()
}

// Whoever writes the response, what settles beside it must not touch its headers: two
// accesses to one map at once end the process. Nor does it race with Settled. The race detector finds them.
func TestSettlingTouchesNoHeaders(t *testing.T) {
	const timeout = 5 * time.Millisecond
	settle := func(r *http.Request) {
		ctx := r.Context()
		_ = ratelimit.Add(ctx, "tokens", 1)
		_ = ratelimit.Settle(ctx, "rows", 3) // the request may be over
		_ = ratelimit.Settle(ctx, "tokens", 2)
		_ = ratelimit.Settle(ctx, "other", 0)
	}
	beside := func(respond http.HandlerFunc) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			release := ratelimit.Hold(r.Context())
			go func() {
				defer release()
				settle(r)
			}()
			respond(w, r)
		})
	}
	accept := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/jobs/1")
		w.WriteHeader(http.StatusAccepted)
	}
	hijack := func(w http.ResponseWriter, _ *http.Request) {
		if conn, _, err := http.NewResponseController(w).Hijack(); err != nil {
			t.Error(err)
		} else {
			_ = conn.Close()
		}
	}
	late := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(timeout)
		settle(r)
		w.WriteHeader(http.StatusOK)
	})
	for name, h := range map[string]http.Handler{
		"held":                  beside(accept),
		"hijacked":              beside(hijack),
		"at the timeout":        http.TimeoutHandler(late, timeout, ""),
		"held, with a timeout":  http.TimeoutHandler(beside(accept), time.Minute, ""),
		"held until it is over": beside(func(w http.ResponseWriter, r *http.Request) { late(w, r) }),
	} {
		for _, chained := range []int{1, 3} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					other := failures(1000) // refunded when the status is written
					other.Name = "other"
					h := h
					for range chained {
						h = mustNew(t, ratelimit.Config{
							Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{perHour("rows", 1000), perHour("tokens", 1000), other},
							Headers: bothFields, Settled: func(*http.Request, algorithms.Decision) {},
						}).Handler(h)
					}
					for range 50 {
						w := httptest.NewRecorder()
						h.ServeHTTP(hijackable{w}, request("GET /"))
						synctest.Wait()
						if got := w.Header().Get("X-RateLimit-Limit"); got != "1000" {
							t.Fatalf("%d %v", w.Code, w.Header())
						}
					}
				})
			})
		}
	}
}
