package p03

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/algorithms/limitertest"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
)

func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := &failmode.Guard{Limiter: &algorithms.Redis{Client: limitertest.Redis(t), Namespace: "app"}}
		defer guard.Close()
		limit, err := limits(guard, keyfunc.Proxies{}, []byte("32 random bytes, or so they say!"))
		if err != nil {
			t.Fatal(err)
		}
		h := limit.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Password") != "right" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			w.WriteHeader(http.StatusNoContent)
		}))
		want := func(status int, ip, email, password string) *httptest.ResponseRecorder {
			t.Helper()
			r := httptest.NewRequest(http.MethodPost, "/auth/login", strings.NewReader(email))
			r.RemoteAddr = ip + ":1234"
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Password", password)
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, r); w.Code != status {
				t.Errorf("%s, %s: got %d, want %d", ip, email, w.Code, status)
			}
			return w
		}
		const alice, bob = `{"email":"alice@example.org"}`, `{"email":"Bob@example.org"}`
		for range 100 { // successes give back
			want(204, "192.0.2.1", alice, "right")
		}
		if w := want(400, "192.0.2.2", `{}`, ""); !strings.Contains(w.Body.String(), "email required") {
			t.Error(w.Body)
		}
		for i := range 5 { // an account, from everywhere
			want(401, fmt.Sprint("198.51.100.", i), alice, "wrong")
		}
		w := want(429, "198.51.100.9", alice, "right")
		if strings.Contains(w.Body.String(), "account") || w.Header().Get("Retry-After") != "900" {
			t.Errorf("%v %s", w.Header(), w.Body)
		}
		want(204, "198.51.100.9", bob, "right")
		for i := range 5 { // an address, for all accounts
			want(401, "203.0.113.5", fmt.Sprintf(`{"email":"user-%d@example.org"}`, i), "wrong")
		}
		want(429, "203.0.113.5", bob, "right")
		time.Sleep(15*time.Minute - time.Second)
		want(429, "203.0.113.5", bob, "right")
		want(429, "198.51.100.9", `{"email":"ALICE@example.org"}`, "right")
		time.Sleep(time.Second)
		want(204, "203.0.113.5", bob, "right")
		want(204, "198.51.100.9", alice, "right")
	})
}
