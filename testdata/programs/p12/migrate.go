// 12. From httprate and ulule/limiter.
package p12

import (
	"context"
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/headers"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

type costKey struct{}
type accountKey struct{}

func account(ctx context.Context) (string, bool) {
	s, ok := ctx.Value(accountKey{}).(string)
	return s, ok
}
func cost(r *http.Request) int64 { n, _ := r.Context().Value(costKey{}).(int64); return n }

// httprateredis.WithRedisLimitCounter(&httprateredis.Config{Client: client, PrefixKey: "app"}), to be closed
func counter(client *redis.Client) *failmode.Guard {
	return &failmode.Guard{Limiter: &algorithms.Redis{Client: client, Namespace: "app"}}
}

func routes(guard *failmode.Guard, mux *http.ServeMux, tooMany http.HandlerFunc) (http.Handler, error) {
	limit, err := ratelimit.New(ratelimit.Config{
		Limiter: guard,
		Rules: []ratelimit.Rule{
			// httprate.LimitByIP(100, time.Minute)
			{Name: "per-ip", Key: keyfunc.IP, Limit: algorithms.PerMinute(100)},
			// httprate.Limit(10, time.Second, httprate.WithKeyFuncs(httprate.KeyByIP, httprate.KeyByEndpoint))
			// and httprate.WithIncrement(ctx, 5): a value in the context, or Costs
			{Name: "per-endpoint", Key: keyfunc.Join(keyfunc.IP, keyfunc.Mux(mux)), Limit: algorithms.PerSecond(10), CostFor: cost},
			// httprate.WithKeyFuncs(mine): a function of httprate's type is one of ours
			{Name: "mine", Key: keyfunc.Func(mine), Limit: algorithms.PerMinute(30)},
		},
		// httprate.WithLimitHandler(tooMany)
		Denied: func(w http.ResponseWriter, r *http.Request, _ algorithms.Decision) { tooMany(w, r) },
	})
	if err != nil {
		return nil, err
	}

	// if loginLimiter.RespondOnLimit(w, r, account) { return }: the rest of the handler is the next handler
	perAccount, err := ratelimit.New(ratelimit.Config{Limiter: guard, Rules: []ratelimit.Rule{
		{Name: "account", Key: keyfunc.Context(account), Limit: algorithms.PerMinute(5)},
	}})
	if err != nil {
		return nil, err
	}
	login := func(w http.ResponseWriter, r *http.Request) {
		name := r.PostFormValue("name") // known only here
		check := func(w http.ResponseWriter, r *http.Request) { /* the password */ }
		perAccount.Handler(http.HandlerFunc(check)).ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), accountKey{}, name)))
	}

	router := chi.NewRouter()
	router.Use(limit.Handler)
	router.Post("/login", login)
	return router, nil
}

func mine(r *http.Request) (string, error) { return r.Header.Get("X-Team"), nil }

// ulule: rate, err := limiter.NewRateFromFormatted("5-S"); stdlib.NewMiddleware(limiter.New(store, rate,
// limiter.WithTrustForwardHeader(true))).Handler(h)
func ulule(guard *failmode.Guard, trusted keyfunc.Proxies, h http.Handler) (http.Handler, error) {
	rate, err := algorithms.ParseLimit("5/1s fixed_window")
	if err != nil {
		return nil, err
	}
	m, err := ratelimit.New(ratelimit.Config{Limiter: guard, Headers: headers.XRateLimit,
		Rules: []ratelimit.Rule{{Name: "per-ip", Key: trusted.IP(), Limit: rate}}})
	if err != nil {
		return nil, err
	}
	return m.Handler(h), nil
}
