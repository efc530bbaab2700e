package p12

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms/limitertest"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// What httprate did is done: limits by address, by address and endpoint with a cost
// from the context, by a function of its type, and by what the handler finds out.
func TestHTTPRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mux := http.NewServeMux()
		mux.HandleFunc("POST /login", func(http.ResponseWriter, *http.Request) {})
		guard := counter(limitertest.Redis(t))
		defer guard.Close()
		h, err := routes(guard, mux, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
		if err != nil {
			t.Fatal(err)
		}
		login := func(name, team string, units int64) int {
			r := httptest.NewRequest(http.MethodPost, "/login", strings.NewReader(url.Values{"name": {name}}.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header.Set("X-Team", team)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), costKey{}, units)))
			return w.Code
		}
		for i, want := range []int{200, 200, 200, 200, 200, 429} {
			if got := login("alice", "a", 0); got != want {
				t.Errorf("login %d: %d", i+1, got)
			}
		}
		if got := login("bob", "a", 5); got != http.StatusTeapot { // 6 of 10 are used in this second
			t.Errorf("a cost of 5: %d", got)
		}
		if got := login("bob", "a", 4); got != 200 {
			t.Errorf("a cost of 4: %d", got)
		}
		time.Sleep(3 * time.Second)
		for range 23 { // 7 of the team's 30 are used
			login("carol", "a", 0)
			time.Sleep(300 * time.Millisecond)
		}
		if a, b := login("dave", "a", 0), login("dave", "b", 0); a != http.StatusTeapot || b != 200 {
			t.Errorf("team a: %d, team b: %d", a, b)
		}
	})
}

func TestUlule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := counter(limitertest.Redis(t))
		defer guard.Close()
		h, err := ulule(guard, keyfunc.Proxies{}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []int{200, 200, 200, 200, 200, 429} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			if w.Code != want || w.Header().Get("X-RateLimit-Limit") != "5" {
				t.Errorf("%d: %d %v", i, w.Code, w.Header())
			}
		}
	})
}
