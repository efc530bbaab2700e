package p09

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/algorithms/limitertest"
	"github.com/seed75154129/ratelimit/failmode"
)

func send(h http.Handler, method, target, form string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(form))
	r.RemoteAddr, r.Host = "[2001:db8::7]:4711", "localhost"
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// The admin port has metrics and the operators' handler. One /64 is one client.
func TestAdmin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := &failmode.Guard{Limiter: &algorithms.Redis{Client: limitertest.Redis(t), Namespace: "app", Budget: time.Second}}
		defer guard.Close()
		limit, handler, err := admin(guard)
		if err != nil {
			t.Fatal(err)
		}
		app := limit.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		for range 201 {
			send(app, "GET", "/", "")
		}
		if w := send(handler, "GET", "/metrics", ""); w.Code != 200 || !strings.Contains(w.Body.String(), `outcome="denied",rule="per-ip",source="redis"} 1`) {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if w := send(handler, "GET", "/ratelimit/", ""); w.Code != 200 || !strings.Contains(w.Body.String(), `"key": "2001:db8::/64"`) {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		client := url.Values{"action": {"reset"}, "rule": {"per-ip"}, "value": {"2001:db8::1"}}
		if w := send(handler, "POST", "/ratelimit/", client.Encode()); w.Code != 200 || !strings.Contains(w.Body.String(), `"remaining": 200`) {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if w := send(app, "GET", "/", ""); w.Header().Get("X-RateLimit-Remaining") != "199" {
			t.Error(w.Header())
		}
	})
}
