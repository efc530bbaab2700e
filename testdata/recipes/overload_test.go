package recipes

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
	"github.com/seed75154129/ratelimit/middleware/shed"
)

func TestShop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		planOf := func(ctx context.Context) string { plan, _ := ctx.Value(contextKey("plan")).(string); return plan }
		limit := limited(t, ratelimit.Rule{Name: "user", Key: keyfunc.IP, Limit: algorithms.PerMinute(1000)})
		h := shop(limit, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(90 * time.Millisecond) }), planOf)
		var all sync.WaitGroup
		var mu sync.Mutex
		served := make(map[string]int)
		for range 16 {
			for plan, path := range map[string]string{"": "/checkout", "free": "/", "pro": "/", "paying": "/checkout", "health": "/healthz"} {
				all.Go(func() {
					w := httptest.NewRecorder()
					r := httptest.NewRequest("GET", path, nil)
					r.Header.Set("X-Priority", "critical") // changes nothing
					ctx := r.Context()
					if plan != "health" {
						ctx = context.WithValue(ctx, contextKey("plan"), plan)
					}
					if h.ServeHTTP(w, r.WithContext(ctx)); w.Code == 200 {
						mu.Lock()
						served[plan]++
						mu.Unlock()
					}
				})
			}
		}
		all.Wait()
		if first := served["paying"]; first != 16 || served["health"] != 16 || served[""]+served["free"]+served["pro"] != 16 {
			t.Error(served)
		}
	})
}

func TestBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shed.Shedder{Min: 1, Max: 1}
		h := limited(t, batches(keyfunc.IP, s)).Handler(responds(200))
		wants(t, "idle", statuses(h, 700, from("192.0.2.1:1", "GET", "/batch/1")), 200, 600, 429, 100)
		go s.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(10 * time.Minute) })).
			ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		for range 20 {
			time.Sleep(10 * time.Second)
			statuses(h, 1, from("192.0.2.2:1", "GET", "/batch/1"))
		}
		wants(t, "full", statuses(h, 100, from("192.0.2.1:1", "GET", "/batch/1")), 200, 60, 429, 40)
		time.Sleep(10 * time.Minute)
		for range 20 {
			time.Sleep(10 * time.Second)
			statuses(h, 1, from("192.0.2.2:1", "GET", "/batch/1"))
		}
		wants(t, "idle again", statuses(h, 700, from("192.0.2.1:1", "GET", "/batch/1")), 200, 600, 429, 100)
	})
}
