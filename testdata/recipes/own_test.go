package recipes

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/algorithms/limitertest"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

func newApp(t *testing.T, limiter algorithms.Limiter) http.Handler {
	limit, err := ratelimit.New(ratelimit.Config{Limiter: limiter, Rules: []ratelimit.Rule{
		{Name: "per-ip", Key: keyfunc.IP, Limit: algorithms.Limit{Rate: 5, Period: time.Minute, Algorithm: algorithms.FixedWindow}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return limit.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
}

func TestFiveAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := &failmode.Guard{Limiter: &algorithms.Redis{Client: limitertest.Redis(t), Namespace: "app"}}
		defer guard.Close()
		one, two := newApp(t, guard), newApp(t, guard)
		want := func(app http.Handler, status int) {
			t.Helper()
			w := httptest.NewRecorder()
			app.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			if w.Code != status {
				t.Fatalf("got %d, want %d", w.Code, status)
			}
		}
		for range 5 {
			want(one, http.StatusOK)
		}
		want(two, http.StatusTooManyRequests) // both share one count
		time.Sleep(time.Minute)               // takes no real time
		want(two, http.StatusOK)
	})
}
