package recipes

import (
	"net/netip"

	"github.com/seed75154129/ratelimit"
	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
)

func cloudflare(networks string) (keyfunc.Key, error) { // networks: the lines of cloudflare.com/ips-v4 and ips-v6
	proxies := keyfunc.Proxies{}
	err := proxies.UnmarshalText([]byte(networks + ",header=CF-Connecting-IP"))
	return proxies.IP(), err
}

func behindNginx() keyfunc.Key { // proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
	return keyfunc.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.7/32")}}.IP()
}

func behindIngress() keyfunc.Key { // externalTrafficPolicy: Local, so that the ingress sees the client's address
	return keyfunc.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("10.244.3.0/24")}}.IP() // the network of the ingress's pods, as narrow as possible
}

func safelist(limiter algorithms.Limiter, proxies keyfunc.Proxies, rules []ratelimit.Rule) (*ratelimit.Middleware, error) {
	return ratelimit.New(ratelimit.Config{
		Limiter: limiter, Rules: rules,
		Skip:    []string{"GET /healthz"},
		SkipFor: proxies.In(netip.MustParsePrefix("198.51.100.0/24")), // our office's addresses, as the proxies see them
	})
}
