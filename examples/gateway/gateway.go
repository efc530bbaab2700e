package main

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
	"github.com/seed75154129/ratelimit/middleware/rulefile"
)

// Times that a request may take. An event stream may take longer than the rest; its
// client connects again when it ends, as EventSource does by itself.
const (
	readTime   = 30 * time.Second
	writeTime  = 30 * time.Second
	streamTime = time.Hour
)

// A gateway limits requests and passes them on to upstreams: those for /NAME/… to
// the upstream of that name.
type gateway struct {
	limiter   algorithms.Limiter
	proxies   keyfunc.Proxies
	upstreams map[string]*url.URL
	loader    rulefile.Loader
	transport http.RoundTripper // nil means a new one

	limit    *ratelimit.Middleware
	registry *prometheus.Registry
}

// start loads the rules. Then public and admin return the handlers.
func (g *gateway) start(ctx context.Context) (err error) {
	g.loader.Keys = map[string]keyfunc.Key{"ip": g.proxies.IP()}
	g.loader.Edit = g.complete
	rules, err := g.loader.Load(ctx)
	if err != nil {
		return err
	}
	g.registry = prometheus.NewRegistry()
	g.limit, err = ratelimit.New(ratelimit.Config{Limiter: g.limiter, Rules: rules, Registerer: g.registry})
	return err
}

// complete refuses rules that leave an upstream without a limit of its own.
func (g *gateway) complete(rules []ratelimit.Rule) ([]ratelimit.Rule, error) {
	var errs []error
	for name := range g.upstreams {
		pattern := "/" + name + "/"
		if !slices.ContainsFunc(rules, func(r ratelimit.Rule) bool { return !r.Disabled && slices.Contains(r.Match, pattern) }) {
			errs = append(errs, fmt.Errorf("no rule for the upstream %s; write one with match: [%s]", name, pattern))
		}
	}
	return rules, errors.Join(errs...)
}

// public is what clients reach.
func (g *gateway) public() http.Handler {
	if g.transport == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConnsPerHost, t.ResponseHeaderTimeout = 64, 10*time.Second
		g.transport = t
	}
	mux := http.NewServeMux()
	for name, to := range g.upstreams {
		mux.Handle("/"+name+"/", &httputil.ReverseProxy{
			Transport: g.transport,
			Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(to)
				g.identify(r)
			},
			ModifyResponse: func(resp *http.Response) error {
				allowStream(resp)
				return ratelimit.ModifyResponse(resp) // an upstream may have limits of its own: clients get one set of headers
			},
		})
	}
	return withController(g.limit.Handler(mux))
}

// identify tells the upstream the client's address, which nobody but a trusted proxy
// can make up. ReverseProxy has removed Forwarded and X-Forwarded-*.
func (g *gateway) identify(r *httputil.ProxyRequest) {
	r.SetXForwarded()
	r.Out.Header.Del("X-Forwarded-For")
	r.Out.Header.Del("X-Real-Ip")
	if addr, err := g.proxies.Addr(r.In); err == nil {
		r.Out.Header.Set("X-Forwarded-For", addr.String())
	}
}

// admin is what only operators reach.
func (g *gateway) admin() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(g.registry, promhttp.HandlerOpts{}))
	mux.Handle("/ratelimit/", g.limit.Admin())
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	return mux
}

// newServer returns a server with the time limits that protect it from slow clients.
// WebSockets are free of them, since net/http lifts them from a hijacked connection.
func newServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: readTime, WriteTimeout: writeTime, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 16 << 10,
	}
}

type controllerKey struct{}

// withController has allowStream find the connection of a request.
func withController(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), controllerKey{}, http.NewResponseController(w))))
	})
}

// allowStream gives an event stream more time. The upstream says that it is one; a
// client's Accept field would free any client of the limit.
func allowStream(resp *http.Response) {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	c, ok := resp.Request.Context().Value(controllerKey{}).(*http.ResponseController)
	if kind != "text/event-stream" || !ok {
		return
	}
	_ = c.SetWriteDeadline(time.Now().Add(streamTime)) // without it the stream ends after writeTime
	_ = c.SetReadDeadline(time.Time{})                 // the request has been read
}
