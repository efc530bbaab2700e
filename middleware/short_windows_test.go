package middleware_test

import (
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// A full Memory that forgets what a rule of a short window has counted does not forget what
// one of a long window has.
func TestAShortWindowForgetsNoLongOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		short, long := perHour("short", 5), perHour("long", 2, "POST /")
		short.Key, short.Limit.Period = keyfunc.Header("User"), time.Second
		h := mustNew(t, ratelimit.Config{Limiter: &algorithms.Memory{MaxKeys: 256}, Rules: []ratelimit.Rule{short, long}}).Handler(ok)
		times(2, h, "POST /", "User", "first")
		for i := range 3000 { // some keys at a time
			if code := serve(h, "GET /", "User", strconv.Itoa(i)).Code; code != http.StatusNoContent {
				t.Fatalf("user %d: %d", i, code)
			}
			time.Sleep(time.Second)
		}
		if code := serve(h, "POST /", "User", "last").Code; code != http.StatusTooManyRequests {
			t.Errorf("after 50 minutes: %d, want 429", code)
		}
	})
}
