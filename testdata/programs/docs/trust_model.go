package docs

import (
	"net/http"

	"github.com/seed75154129/ratelimit"
	"github.com/seed75154129/ratelimit/keyfunc"
)

func levels(proxies keyfunc.Proxies) []ratelimit.Rule {
	rules := []ratelimit.Rule{
		{Name: "per-ip", Key: proxies.IP(), Limit: ratelimit.PerMinute(200)},
		{Name: "per-48", Key: proxies.IPv6(48), Limit: ratelimit.PerMinute(2000)},
	}
	return rules
}

func logins(proxies keyfunc.Proxies, login []string, perIP, perAccount ratelimit.Limit) []ratelimit.Rule {
	return []ratelimit.Rule{
		{Name: "login-ip", Match: login, Key: proxies.IP(), Limit: perIP},
		{Name: "login-account", Match: login, Key: keyfunc.Required(keyfunc.BodyJSON("email", 8<<10), http.StatusBadRequest), Limit: perAccount},
	}
}
