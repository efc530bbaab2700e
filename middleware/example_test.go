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
