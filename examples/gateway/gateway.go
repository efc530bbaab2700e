package main

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
	"github.com/seed75154129/ratelimit/middleware/admin"
	"github.com/seed75154129/ratelimit/middleware/metrics"
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
	g.limit, err = ratelimit.New(ratelimit.Config{Limiter: g.limiter, Rules: rules})
	if err != nil {
		return err
	}
	g.registry = prometheus.NewRegistry()
	return metrics.Register(g.registry, g.limit)
}

// complete refuses rules that leave an upstream without a limit of its own. A rule in
// shadow is none, whatever it enforces: it may have only one key.
func (g *gateway) complete(rules []ratelimit.Rule) ([]ratelimit.Rule, error) {
	var errs []error
	for name := range g.upstreams {
		pattern := "/" + name + "/"
		if !slices.ContainsFunc(rules, func(r ratelimit.Rule) bool { return !r.Disabled && !r.Shadow && slices.Contains(r.Match, pattern) }) {
			errs = append(errs, fmt.Errorf("no rule for the upstream %s; write one with match: [%s], neither disabled nor in shadow", name, pattern))
		}
	}
	return rules, errors.Join(errs...)
}

// public is the handler for clients.
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
				onlyWebSockets(r.Out)
				g.identify(r)
			},
			ModifyResponse: func(resp *http.Response) error {
				allowStream(resp)
				return ratelimit.ModifyResponse(resp) // an upstream may have limits of its own: clients get one set of headers
			},
		})
	}
	return withController(onlyPlain(g.limit.Handler(mux)))
}

// oddPath matches paths that some upstreams read in another way than the rules do:
// with parameters, backslashes, control characters, and encoded dots, separators and
// percent signs.
var oddPath = regexp.MustCompile(`(?i)[;\\]|%(0|1|2[35ef]|3[bf]|5c|7f)`)

// onlyPlain refuses such paths, paths that are not UTF-8, and CONNECT, whose path
// ServeMux does not clean. These requests are not charged.
func onlyPlain(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect || oddPath.MatchString(r.URL.EscapedPath()) || !utf8.ValidString(r.URL.Path) {
			http.Error(w, http.StatusText(http.StatusBadRequest), http.StatusBadRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// onlyWebSockets asks the upstream for no other protocol. On a connection that has
// become HTTP/2 a client could send any requests, and the rules would see one.
func onlyWebSockets(out *http.Request) {
	if !strings.EqualFold(out.Header.Get("Upgrade"), "websocket") {
		out.Header.Del("Upgrade")
		out.Header.Del("Connection")
	}
	out.Header.Del("HTTP2-Settings")
}

// proxyFields are fields that upstreams believe because proxies set them: the
// client's address, the user, and another URL or method than those of the request.
// X-Forwarded-* are removed too.
var proxyFields = []string{
	"CF-Connecting-IP", "CF-Connecting-IPv6", "Client-IP", "Fastly-Client-IP", "Fly-Client-IP", "True-Client-IP",
	"X-Azure-ClientIP", "X-Client-IP", "X-Cluster-Client-IP", "X-Envoy-External-Address", "X-Original-Forwarded-For", "X-Originating-IP", "X-Real-IP", "X-Remote-Addr", "X-Remote-IP",
	"Remote-User", "X-Auth-Request-User", "X-Authenticated-User", "X-Remote-User", "X-User", "X-User-Email", "X-User-Id",
	"X-Host", "X-Original-Host", "X-Original-URI", "X-Original-URL", "X-Rewrite-URL",
	"X-HTTP-Method", "X-HTTP-Method-Override", "X-Method-Override",
	"Proxy", // HTTP_PROXY to CGI
}

// identify sends the upstream the client's address, which only a trusted proxy can
// choose. It removes all other fields that upstreams expect from proxies. Fields with
// an underscore are removed because CGI and WSGI read X_User_Id as X-User-Id.
func (g *gateway) identify(r *httputil.ProxyRequest) {
	for name := range r.Out.Header {
		if strings.HasPrefix(name, "X-Forwarded-") || strings.Contains(name, "_") {
			delete(r.Out.Header, name)
		}
	}
	for _, name := range proxyFields {
		r.Out.Header.Del(name)
	}
	r.SetXForwarded()
	r.Out.Header.Del("X-Forwarded-For")
	if addr, err := g.proxies.Addr(r.In); err == nil {
		r.Out.Header.Set("X-Forwarded-For", addr.String())
	}
}

// admin is the handler for operators.
func (g *gateway) admin() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(g.registry, promhttp.HandlerOpts{}))
	mux.Handle("/ratelimit/", admin.Handler(g.limit))
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
