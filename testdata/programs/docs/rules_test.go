package docs

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// A tighter limit denies no user, then a tenth of the users, then all of them, by the
// counts that it has from the start.
func TestRollOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := &failmode.Guard{Limiter: new(algorithms.Memory), Instances: 1}
		defer guard.Close()
		user := keyfunc.Header("User")
		today := ratelimit.Rule{Name: "per-user", Key: user, Limit: algorithms.PerMinute(100)}
		limit, err := ratelimit.New(ratelimit.Config{Limiter: guard, Rules: []ratelimit.Rule{today}, DenialLogRate: -1})
		if err != nil {
			t.Fatal(err)
		}
		stage := func(n int) {
			t.Helper()
			if err := rollOut(limit, today, user, n); err != nil {
				t.Fatal(err)
			}
		}
		stage(0)
		h := limit.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		denied := func(requests int) map[string]bool {
			users := make(map[string]bool)
			for i := range 200 {
				user := fmt.Sprint("user ", i)
				for range requests {
					r := httptest.NewRequest(http.MethodGet, "/", nil)
					r.Header.Set("User", user)
					w := httptest.NewRecorder()
					if h.ServeHTTP(w, r); w.Code == http.StatusTooManyRequests {
						users[user] = true
					}
				}
			}
			return users
		}
		if got := denied(70); len(got) > 0 {
			t.Errorf("watched, %d users are denied", len(got))
		}
		stage(1)
		some := denied(1) // all have made 70 requests of 60
		if len(some) < 5 || len(some) > 40 {
			t.Errorf("%d of 200 users are denied", len(some))
		}
		stage(2)
		if got := denied(1); len(got) != 200 {
			t.Errorf("%d of 200 users are denied", len(got))
		}
	})
}
