// 5. A gateway: ReverseProxy, a rule per upstream, SSE, WebSocket messages one by one.
package p05

import (
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

type conn interface {
	Read() ([]byte, error)
	Close(reason string) error
}

func gateway(guard *failmode.Guard, client keyfunc.Key, upstreams map[string]*url.URL,
	accept func(http.ResponseWriter, *http.Request) (conn, error),
) (http.Handler, error) {
	rules := []ratelimit.Rule{{Name: "client", Key: client, Limit: algorithms.PerMinute(600)}}
	mux := http.NewServeMux()
	for name, to := range upstreams {
		mux.Handle("/"+name+"/", &httputil.ReverseProxy{
			Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(to); r.SetXForwarded() },
			ModifyResponse: ratelimit.ModifyResponse, // one set of headers, the tighter
		}) // SSE: responses of rules without ChargeOn are never wrapped, so Flush works
		rules = append(rules, ratelimit.Rule{
			Name: "upstream-" + name, Match: []string{"/" + name + "/"}, Key: keyfunc.Everyone,
			Limit: algorithms.Limit{Rate: 1000, Period: time.Second, Burst: 100, Algorithm: algorithms.TokenBucket},
			Fail:  failmode.Local, Hidden: true, Lease: false,
		})
	}
	messages, err := ratelimit.New(ratelimit.Config{Limiter: guard, Rules: []ratelimit.Rule{
		{Name: "messages", Key: client, Limit: algorithms.PerSecond(20)},
	}})
	if err != nil {
		return nil, err
	}
	mux.HandleFunc("GET /ws", func(w http.ResponseWriter, r *http.Request) {
		c, err := accept(w, r)
		if err != nil {
			return
		}
		for {
			if _, err := c.Read(); err != nil {
				return
			}
			if d, err := messages.Take(r); err != nil || !d.Allowed {
				_ = c.Close("too many messages; retry in " + d.RetryAfter().String())
				return
			}
		}
	})
	limit, err := ratelimit.New(ratelimit.Config{Limiter: guard, Rules: rules})
	if err != nil {
		return nil, err
	}
	return limit.Handler(mux), nil
}
