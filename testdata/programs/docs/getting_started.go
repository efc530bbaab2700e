package docs

import (
	"flag"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

func trustedProxies() (proxies keyfunc.Proxies) {
	flag.TextVar(&proxies, "trusted-proxies", keyfunc.Proxies{}, "networks, addresses, or unix, separated by commas")
	flag.Parse()
	return proxies
}

func limits(limiter algorithms.Limiter, proxies keyfunc.Proxies) (*ratelimit.Middleware, error) {
	return ratelimit.New(ratelimit.Config{
		Limiter: limiter,
		Rules: []ratelimit.Rule{
			{Name: "per-ip", Key: proxies.IP(), Limit: algorithms.PerMinute(200)},
			{
				Name: "login", Match: []string{"POST /login"}, Key: proxies.IP(),
				Limit: algorithms.Limit{Rate: 5, Period: time.Minute, Algorithm: algorithms.SlidingLog},
			},
		},
		Skip: []string{"GET /healthz", "GET /metrics"},
	})
}
