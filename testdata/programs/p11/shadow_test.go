package p11

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

// A tighter limit denies nobody, then a tenth of the users, then all; its counts are
// warm, and who is enforced stays so.
func TestStages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := &failmode.Guard{Limiter: new(algorithms.Memory), Instances: 1}
		defer guard.Close()
		watch, tenth, all := stages(keyfunc.Header("User"))
		limit, err := ratelimit.New(ratelimit.Config{Limiter: guard, Rules: watch, DenialLogRate: -1})
		if err != nil {
			t.Fatal(err)
		}
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
		if err := rollOut(limit, tenth); err != nil {
			t.Fatal(err)
		}
		some := denied(1) // all have made 70 requests of 60
		if len(some) < 5 || len(some) > 40 {
			t.Errorf("%d of 200 users are denied", len(some))
		}
		if err := rollOut(limit, all); err != nil {
			t.Fatal(err)
		}
		if got := denied(1); len(got) != 200 {
			t.Errorf("%d of 200 users are denied", len(got))
		}
	})
}
