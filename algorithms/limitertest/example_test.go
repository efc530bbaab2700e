package limitertest_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/algorithms/limitertest"
)

// newApp is an application's own: what its main serves, given a Redis.
func newApp(rdb *redis.Client) http.Handler {
	limiter := &algorithms.Redis{Client: rdb, Namespace: "app"}
	perMinute := algorithms.Limit{Rate: 5, Period: time.Minute, Algorithm: algorithms.FixedWindow}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d, err := limiter.Take(r.Context(), algorithms.Check{Rule: "login", Key: r.RemoteAddr, Limit: perMinute})
		switch {
		case err != nil:
			http.Error(w, "try again later", http.StatusServiceUnavailable)
		case !d.Allowed:
			http.Error(w, "too many attempts", http.StatusTooManyRequests)
		}
	})
}

func wantLogin(t *testing.T, app http.Handler, want int) {
	t.Helper()
	w := httptest.NewRecorder()
	app.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/login", nil))
	if w.Code != want {
		t.Errorf("%d, want %d", w.Code, want)
	}
}

// The test of a limit sleeps through its minute in no time, because the clock
// is fake. This is the body of a TestLoginLimit.
func ExampleRedis() {
	var t *testing.T // the test's
	synctest.Test(t, func(t *testing.T) {
		app := newApp(limitertest.Redis(t))
		for range 5 {
			wantLogin(t, app, http.StatusOK)
		}
		wantLogin(t, app, http.StatusTooManyRequests)
		time.Sleep(time.Minute) // takes no time: the clock is fake
		wantLogin(t, app, http.StatusOK)
	})
}

// TestLoginLimit is how an application tests its limits: on a fake clock, on
// which it sleeps through a minute in no time.
func TestLoginLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		app := newApp(limitertest.Redis(t))
		for range 5 {
			wantLogin(t, app, http.StatusOK)
		}
		wantLogin(t, app, http.StatusTooManyRequests)
		time.Sleep(time.Minute) // takes no time: the clock is fake
		wantLogin(t, app, http.StatusOK)
	})
}

// TestLoginWithoutRedis is how it tests what happens when Redis fails.
func TestLoginWithoutRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb, server := limitertest.RedisServer(t)
		app := newApp(rdb)
		server.SetError("READONLY You can't write against a read only replica.")
		wantLogin(t, app, http.StatusServiceUnavailable)
		server.SetError("")
		wantLogin(t, app, http.StatusOK)
	})
}
