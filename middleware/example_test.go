package middleware_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/headers"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// Two layers: every request counts by address, and a login has a limit of its own.
// The third login is denied.
func ExampleNew() {
	limit, err := ratelimit.New(ratelimit.Config{
		Limiter: new(algorithms.Memory),
		Rules: []ratelimit.Rule{
			{Name: "per-ip", Key: keyfunc.IP, Limit: algorithms.PerMinute(200)},
			{Name: "login", Match: []string{"POST /login"}, Key: keyfunc.IP, Limit: algorithms.PerMinute(2)},
		},
	})
	if err != nil {
		panic(err)
	}
	h := limit.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "welcome") }))

	for range 3 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/login", nil))
		fmt.Println(w.Code, w.Header().Get("X-RateLimit-Remaining"))
	}
	// Output:
	// 200 1
	// 200 0
	// 429 0
}

// A service whose errors all have the same form gives denials that form too.
// People who come with a browser get what everybody else gets by default.
func ExampleConfig_denied() {
	limit, err := ratelimit.New(ratelimit.Config{
		Limiter: new(algorithms.Memory),
		Rules:   []ratelimit.Rule{{Name: "per-ip", Key: keyfunc.IP, Limit: algorithms.PerHour(1)}},
		Denied: func(w http.ResponseWriter, r *http.Request, d algorithms.Decision) {
			if r.Header.Get("Accept") != "application/vnd.shop+json" {
				headers.Deny(w, r, d)
				return
			}
			w.Header().Set("Cache-Control", "no-store")
			w.Header().Set("Content-Type", "application/vnd.shop+json")
			w.WriteHeader(headers.Status(d)) // 429, or 503 where nobody could count
			_ = json.NewEncoder(w).Encode(map[string]string{"error": "slow_down"})
		},
	})
	if err != nil {
		panic(err)
	}
	h := limit.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "welcome") }))

	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Accept", "application/vnd.shop+json")
	for range 2 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Print(w.Code, " ", w.Body)
	}
	// Output:
	// 200 welcome
	// 429 {"error":"slow_down"}
}

// A handler behind the middleware finds what was decided.
func ExampleFromContext() {
	limit, err := ratelimit.New(ratelimit.Config{
		Limiter: new(algorithms.Memory),
		Rules:   []ratelimit.Rule{{Name: "per-ip", Key: keyfunc.IP, Limit: algorithms.PerHour(10)}},
	})
	if err != nil {
		panic(err)
	}
	h := limit.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d, ok := ratelimit.FromContext(r.Context()); ok {
			if perIP, ok := d.Result("per-ip"); ok {
				fmt.Fprintf(w, "%d of %d left", perIP.Remaining, perIP.Check.Limit.Quota())
			}
		}
	}))

	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	fmt.Println(w.Body)
	// Output: 9 of 10 left
}
