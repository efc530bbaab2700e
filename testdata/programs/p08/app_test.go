// 8. An application's test: fake time, miniredis, two processes, a ban.
package p08

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/algorithms/limitertest"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

func newApp(t *testing.T, client *redis.Client) http.Handler {
	guard := &failmode.Guard{Limiter: &algorithms.Redis{Client: client, Namespace: "app"}}
	t.Cleanup(func() { _ = guard.Close() })
	limit, err := ratelimit.New(ratelimit.Config{Limiter: guard, Rules: []ratelimit.Rule{{
		Name: "login", Key: keyfunc.IP, Limit: algorithms.Limit{Rate: 5, Period: time.Minute, Algorithm: algorithms.SlidingLog}, ChargeOn: []int{401},
		Ban: algorithms.Ban{After: 10, Within: time.Minute, For: 15 * time.Minute},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return limit.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(401) }))
}

func TestLoginBan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := limitertest.Redis(t)
		one, two := newApp(t, client), newApp(t, client)
		want := func(app http.Handler, status int) {
			t.Helper()
			w := httptest.NewRecorder()
			app.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/login", nil))
			if w.Code != status {
				t.Fatalf("got %d, want %d", w.Code, status)
			}
		}
		for range 5 {
			want(one, 401)
		}
		for range 10 {
			want(one, 429)
		}
		time.Sleep(14 * time.Minute) // takes no time
		want(two, 429)
		time.Sleep(time.Minute)
		want(two, 401)
	})
}
