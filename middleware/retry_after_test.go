package middleware_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// A client that a limit in flight denies is told the rule's RetryAfter, and what denied it,
// also if another rule, which had room, was asked as well.
func TestRetryAfterOfRequestsInFlight(t *testing.T) {
	for after, want := range map[time.Duration]string{0: "1", 15 * time.Second: "15", time.Hour: "3600"} {
		rules := []ratelimit.Rule{{Name: "exports", Key: keyfunc.IP, Limit: algorithms.MaxInFlight(1), RetryAfter: after}, perHour("rate", 60)}
		var inner http.Handler
		h := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: rules}).
			Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				w := serve(inner, "GET /")
				if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != want || w.Header().Get("X-RateLimit-Limit") != "1" {
					t.Errorf("%s: %d %v", after, w.Code, w.Header())
				}
			}))
		inner = h
		serve(h, "GET /")
	}
}
