// A SaaS API behind Cloudflare and nginx, which docs/saas.md explains.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit"
	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/headers"
	"github.com/seed75154129/ratelimit/keyfunc"
	"github.com/seed75154129/ratelimit/middleware/rulefile"
)

func main() {
	var proxies keyfunc.Proxies
	if err := proxies.UnmarshalText([]byte(os.Getenv("TRUSTED_PROXIES"))); err != nil {
		log.Fatal(err)
	}
	guard := ratelimit.Redis(&redis.Options{Addr: "localhost:6379"}, "api")
	api, err := newAPI(context.Background(), guard, proxies, exampleTables())
	if err != nil {
		log.Fatal(err)
	}
	err = http.ListenAndServe("localhost:8080", api)
	guard.Close()
	log.Fatal(err)
}

func newAPI(ctx context.Context, limiter algorithms.Limiter, proxies keyfunc.Proxies, db *tables) (http.Handler, error) {
	loader := &rulefile.Loader{Source: db, Keys: map[string]keyfunc.Key{
		"ip":       proxies.IP(),
		"customer": keyfunc.Required(keyfunc.Context(customerID), http.StatusUnauthorized),
	}}
	rules, err := loader.Load(ctx)
	if err != nil {
		return nil, err // at start a bad row is fatal; later the old limits stay
	}
	limit, err := ratelimit.New(ratelimit.Config{
		Limiter: limiter,
		Rules:   rules,
		Skip:    []string{"GET /healthz"},
		TierFor: func(r *http.Request) string { return customerOf(r.Context()).plan },
		Denied:  denied,
		Refused: refused,
	})
	if err != nil {
		return nil, err
	}
	go loader.Watch(ctx, limit) // ends with ctx

	mux := http.NewServeMux()
	mux.Handle("GET /quota", limit.QuotaHandler())
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v1/items", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, `{"items":[]}`) })
	return cors(identify(db, limit.Handler(mux))), nil
}

const rulesHead = `version: 1
rules:
  - {name: per-ip, key: ip, limit: 600/1m, hidden: true} # hidden: headers show the plan
  - {name: quota, match: [GET /quota], key: customer, limit: 60/1m, hidden: true}
  - name: plan
    match: [/v1/]
    key: customer
    limit: 1/1m sliding_log # a customer whose plan has no row
    tiers:
`

// Read makes tables a rulefile.Source: it prints the rules, with a line for each row of the
// table plans.
func (t *tables) Read(context.Context) ([]byte, error) {
	text := []byte(rulesHead)
	for _, p := range t.allPlans() { // select name, per_minute, per_month from plans order by name
		text = fmt.Appendf(text, "      %q: [%d/1m, %d/month@UTC]\n", p.name, p.perMinute, p.perMonth)
	}
	return text, nil
}

func (t *tables) String() string { return "table plans" } // names the source in errors

// identify puts the customer whose API key a request has into its context. It refuses
// nobody: the rules do, when the address has been charged.
func identify(db *tables, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		apiKey, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if c, ok := db.customer(apiKey); ok { // select id, plan from customers where api_key_hash = …
			r = r.WithContext(context.WithValue(r.Context(), contextKey{}, c))
		}
		next.ServeHTTP(w, r)
	})
}

type contextKey struct{}

func customerOf(ctx context.Context) customer {
	c, _ := ctx.Value(contextKey{}).(customer)
	return c
}

func customerID(ctx context.Context) (id string, ok bool) {
	id = customerOf(ctx).id
	return id, id != ""
}

func denied(w http.ResponseWriter, _ *http.Request, d ratelimit.Decision) {
	if status := headers.Status(d); status == http.StatusTooManyRequests {
		fail(w, status, "too_many_requests")
	} else {
		fail(w, status, "unavailable") // Redis cannot be asked, and a rule fails closed
	}
}

func refused(w http.ResponseWriter, _ *http.Request, err error) {
	if refusal, ok := errors.AsType[*keyfunc.StatusError](err); ok && refusal.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="api"`)
		fail(w, http.StatusUnauthorized, "unknown_api_key")
		return
	}
	log.Print(err) // names the rule: not for clients
	fail(w, http.StatusInternalServerError, "internal")
}

// fail writes an error in the company's format.
func fail(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error":{"code":%q}}`+"\n", code)
}

// cors answers preflights and lets the pages of the company's app read answers, denials
// included: it is outside the limiter.
func cors(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", "https://app.example.com")
		h.Set("Access-Control-Expose-Headers", "Retry-After, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset")
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			h.Set("Access-Control-Allow-Headers", "Authorization")
			h.Set("Access-Control-Max-Age", "7200")
			w.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(w, r)
	})
}
