package middleware_test

import (
	"bufio"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

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
