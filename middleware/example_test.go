package middleware_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"time"

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
			{
				Name: "login", Match: []string{"POST /login"}, Key: keyfunc.IP,
				Limit: algorithms.Limit{Rate: 2, Period: time.Minute, Algorithm: algorithms.SlidingLog},
			},
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
		Rules:   []ratelimit.Rule{{Name: "per-ip", Key: keyfunc.IP, Limit: algorithms.Limit{Rate: 1, Period: time.Hour, Algorithm: algorithms.SlidingLog}}},
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

// Plans share one rule. Whoever has none, or one that the rule does not know, has
// its Limit; a cost above 1 is for expensive endpoints.
func ExampleRule_tiers() {
	plans := map[string]string{"key-of-acme": "pro"} // the program's, from a session or a database
	limit, err := ratelimit.New(ratelimit.Config{
		Limiter: new(algorithms.Memory),
		TierFor: func(r *http.Request) string { return plans[r.Header.Get("X-API-Key")] },
		Rules: []ratelimit.Rule{{
			Name:  "per-ip", // a client can make up any number of API keys
			Key:   keyfunc.IP,
			Limit: algorithms.PerHour(2000),
		}, {
			Name:  "plan",
			Key:   keyfunc.First(keyfunc.APIKey("X-API-Key"), keyfunc.IP),
			Limit: algorithms.PerHour(60),
			Tiers: map[string][]algorithms.Limit{"pro": {algorithms.PerHour(1000)}, "internal": ratelimit.Unlimited()},
			Costs: map[string]int64{"POST /reports": 10},
		}},
	})
	if err != nil {
		panic(err)
	}
	h := limit.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, key := range []string{"", "key-of-acme"} {
		r := httptest.NewRequest(http.MethodPost, "/reports", nil)
		r.Header.Set("X-API-Key", key)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Println(w.Header().Get("X-RateLimit-Remaining"), "of", w.Header().Get("X-RateLimit-Limit"))
	}
	// Output:
	// 50 of 60
	// 990 of 1000
}

// Only failed logins count: a charge stays if the response is a 401.
func ExampleRule_chargeOn() {
	limit, err := ratelimit.New(ratelimit.Config{Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{{
		Name: "login", Match: []string{"POST /login"}, Key: keyfunc.IP, ChargeOn: []int{http.StatusUnauthorized},
		Limit: algorithms.Limit{Rate: 5, Period: time.Hour, Algorithm: algorithms.SlidingLog},
	}}})
	if err != nil {
		panic(err)
	}
	h := limit.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("password") != "right" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.WriteHeader(http.StatusOK)
	}))
	for _, password := range []string{"wrong", "right", "right", "wrong"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/login?password="+password, nil))
		fmt.Println(w.Code, w.Header().Get("X-RateLimit-Remaining"))
	}
	// Output:
	// 401 4
	// 200 3
	// 200 3
	// 401 3
}

// Who is denied twice in a minute is banned for a quarter of an hour, in all processes.
func ExampleRule_ban() {
	limit, err := ratelimit.New(ratelimit.Config{Limiter: new(algorithms.Memory), DenialLogRate: -1, Rules: []ratelimit.Rule{{
		Name: "login", Key: keyfunc.IP,
		Limit: algorithms.Limit{Rate: 1, Period: 10 * time.Second, Algorithm: algorithms.SlidingLog},
		Ban:   ratelimit.Ban{After: 2, Within: time.Minute, For: 15 * time.Minute},
	}}})
	if err != nil {
		panic(err)
	}
	for range 4 {
		d, err := limit.Take(httptest.NewRequest(http.MethodPost, "/login", nil))
		if err != nil {
			panic(err)
		}
		login, _ := d.Result("login")
		fmt.Println(d.Allowed, login.BannedFor > 0, d.RetryAfter() > 10*time.Minute)
	}
	// Output:
	// true false false
	// false false false
	// false true true
	// false true true
}

// The points of a query are known once it has run.
func ExampleSettle() {
	limit, err := ratelimit.New(ratelimit.Config{Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{{
		Name: "graphql", Key: keyfunc.IP, Limit: algorithms.Limit{Rate: 1000, Period: 24 * time.Hour, Algorithm: algorithms.TokenBucket},
	}}})
	if err != nil {
		panic(err)
	}
	h := limit.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		const points = 300
		if err := ratelimit.Settle(r.Context(), "graphql", points); err != nil {
			fmt.Println(err) // the charge of 1 stays
		}
		fmt.Fprint(w, "{}")
	}))
	for range 2 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/graphql", nil))
		fmt.Println(w.Header().Get("X-RateLimit-Remaining"), "left")
	}
	// Output:
	// 999 left
	// 699 left
}

// Rules are replaced while requests are served. Where one is wrong, all that were in
// force stay.
func ExampleMiddleware_SetRules() {
	perIP := ratelimit.Rule{Name: "per-ip", Key: keyfunc.IP, Limit: algorithms.PerHour(100)}
	limit, err := ratelimit.New(ratelimit.Config{Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{perIP},
		Logger: slog.New(slog.DiscardHandler)}) // which would say that the rules were replaced
	if err != nil {
		panic(err)
	}
	perIP.Limit = algorithms.PerHour(50)
	fmt.Println(limit.SetRules([]ratelimit.Rule{perIP}))
	perIP.Limit = algorithms.PerHour(0)
	fmt.Println(limit.SetRules([]ratelimit.Rule{perIP}))
	fmt.Println(limit.Rules()[0].Limit)
	// Output:
	// <nil>
	// middleware: rule "per-ip": limit: rate must be at least 1, got 0
	// 50/1h
}

// What a client has left, and a second chance for it.
func ExampleMiddleware_Checks() {
	limiter := new(algorithms.Memory)
	limit, err := ratelimit.New(ratelimit.Config{Limiter: limiter, Rules: []ratelimit.Rule{
		{Name: "login", Key: keyfunc.IP, Limit: algorithms.Limit{Rate: 1, Period: time.Hour, Algorithm: algorithms.SlidingLog}},
	}})
	if err != nil {
		panic(err)
	}
	h := limit.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	r := httptest.NewRequest(http.MethodPost, "/login", nil)
	r.RemoteAddr = "203.0.113.9:4711"
	h.ServeHTTP(httptest.NewRecorder(), r)

	checks, err := limit.Checks("login", "203.0.113.9")
	if err != nil {
		panic(err)
	}
	for range 2 {
		d, err := limiter.Peek(context.Background(), checks...)
		if err != nil {
			panic(err)
		}
		fmt.Println("may log in:", d.Allowed)
		if err := limiter.Reset(context.Background(), checks...); err != nil {
			panic(err)
		}
	}
	// Output:
	// may log in: false
	// may log in: true
}

// Requests that do not come through Handler, such as the messages of a WebSocket or
// an RPC, are decided by Take.
func ExampleMiddleware_Take() {
	limit, err := ratelimit.New(ratelimit.Config{Limiter: new(algorithms.Memory), DenialLogRate: -1, Rules: []ratelimit.Rule{
		{Name: "messages", Key: keyfunc.IP, Limit: algorithms.Limit{Rate: 1, Period: time.Hour, Algorithm: algorithms.SlidingLog}},
	}})
	if err != nil {
		panic(err)
	}
	r := httptest.NewRequest(http.MethodGet, "/socket", nil) // the request that opened the socket
	for message := range 2 {
		d, err := limit.Take(r)
		if err != nil {
			panic(err) // a key refused the request, or failed
		}
		fmt.Println("message", message, d.Allowed)
	}
	// Output:
	// message 0 true
	// message 1 false
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
