// Chi is a service on a chi router with three layers of rate limits:
// by address, by user, and a strict one on the login routes. A request is one
// decision over all that apply; a request that is denied is charged nothing.
//
//	go run ./examples/chi                                  # counts in process
//	go run ./examples/chi -redis redis://localhost:6379    # counts in Redis
//	go run ./examples/chi -rules testdata/rules/tiers.yaml # the rules of a file, which may change
//	go run ./examples/chi -admin 127.0.0.1:8081            # metrics, and http://127.0.0.1:8081/ratelimit/
//
// Flags, Redis, servers and metrics are in examples/internal/shop.
package main

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/seed75154129/ratelimit"
	"github.com/seed75154129/ratelimit/examples/internal/shop"
	"github.com/seed75154129/ratelimit/keyfunc"
)

func main() {
	shop.Shop{Rules: rules, Routes: routes}.Main()
}

func rules(proxies keyfunc.Proxies) []ratelimit.Rule {
	return []ratelimit.Rule{{
		Name:  "per-ip",
		Key:   proxies.IP(),
		Limit: ratelimit.PerMinute(200), // a sliding window
		Fail:  ratelimit.FailOpen,       // without Redis, better unlimited than refused
	}, {
		Name:  "per-user",
		Key:   keyfunc.Optional(proxies.UserID("X-User-ID")), // per-ip limits who has none
		Limit: ratelimit.MustParse("100/1m token_bucket"),
		Fail:  ratelimit.FailLocal, // without Redis, counted in this process
	}, {
		Name:  "login",
		Match: []string{"POST /auth/login", "POST /auth/register", "POST /auth/reset-password"},
		Key:   proxies.IP(),
		Limit: ratelimit.MustParse("5/1m sliding_log"),
		Fail:  ratelimit.FailClosed, // without Redis, nobody guesses passwords
	}}
}

func routes(limit *ratelimit.Middleware) http.Handler {
	r := chi.NewRouter()
	r.Use(limit.Handler)
	r.Get("/healthz", shop.Respond(`{"status":"ok"}`))
	r.Get("/api/items", shop.Respond(`{"items":["apple","pear"]}`))
	r.Post("/api/reports", shop.Respond(`{"report":"in progress"}`))
	r.Post("/auth/login", shop.Login)
	r.Post("/auth/register", shop.Respond(`{"user":"alice"}`))
	r.Post("/auth/reset-password", shop.Respond(`{"mail":"sent"}`))
	return r
}
