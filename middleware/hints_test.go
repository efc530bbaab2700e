package middleware_test

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

func TestHints(t *testing.T) {
	many := algorithms.PerHour(1_000_000)
	perIP := ratelimit.Rule{Name: "per-ip", Key: keyfunc.IP, Limit: many}
	own := keyfunc.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}} // httptest's clients
	chiRoute := keyfunc.Route(func(r *http.Request) string { return chi.RouteContext(r.Context()).RoutePattern() })

	muxRoute := keyfunc.Route(func(r *http.Request) string { return r.Pattern })
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", ok)

	for name, c := range map[string]struct {
		rules  []ratelimit.Rule
		header []string
		wrap   func(*ratelimit.Middleware) http.Handler
		times  int
		want   []string // a part of each line; none means silence
	}{
		"all is well":                           {rules: []ratelimit.Rule{perIP}, times: 1200},
		"a trusted proxy":                       {rules: []ratelimit.Rule{{Name: "r", Key: own.IP(), Limit: many}}, header: []string{"X-Forwarded-For", "203.0.113.7"}},
		"an untrusted proxy":                    {rules: []ratelimit.Rule{perIP}, header: []string{"X-Forwarded-For", "203.0.113.7"}, want: []string{`rule "per-ip": requests with X-Forwarded-For come from an address that is not trusted`}},
		"a proxy and its client on one machine": {rules: []ratelimit.Rule{{Name: "r", Key: own.IP(), Limit: many}}, header: []string{"X-Forwarded-For", "192.0.2.1"}},
		"an address rule that finds no address": {rules: []ratelimit.Rule{{Name: "r", Key: keyfunc.Proxies{Hops: 1}.IP(), Limit: many}, {Name: "client", Key: keyfunc.Header("Client"), Limit: many}},
			header: []string{"Client", "a"}, times: 5},
		"with RFC 7239": {rules: []ratelimit.Rule{perIP}, header: []string{"Forwarded", "for=203.0.113.7"}, want: []string{`rule "per-ip": requests with Forwarded come from an address that is not trusted`}},
		"twice": {rules: []ratelimit.Rule{perIP}, wrap: func(m *ratelimit.Middleware) http.Handler { return m.Handler(m.Handler(ok)) },
			want: []string{`a request was charged twice by rule "per-ip", since it passed the same middleware twice`}},
		"two middlewares with one limiter": {rules: []ratelimit.Rule{perIP}, wrap: func(m *ratelimit.Middleware) http.Handler {
			other := mustNew(t, ratelimit.Config{Limiter: m.Limiter(), Rules: []ratelimit.Rule{perIP}})
			return other.Handler(m.Handler(ok))
		}, want: []string{`charged twice by rule "per-ip"`}},
		"two with one limiter and other keys": {rules: []ratelimit.Rule{perIP}, wrap: func(m *ratelimit.Middleware) http.Handler {
			other := perIP
			other.Key = keyfunc.Join(keyfunc.IP, keyfunc.Everyone)
			return mustNew(t, ratelimit.Config{Limiter: m.Limiter(), Rules: []ratelimit.Rule{other}}).Handler(m.Handler(ok))
		}},
		"two middlewares are not twice": {rules: []ratelimit.Rule{perIP}, wrap: func(m *ratelimit.Middleware) http.Handler {
			other := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{perIP}})
			return m.Handler(other.Handler(ok))
		}},
		"a route that chi does not know yet": {rules: []ratelimit.Rule{{Name: "route", Key: chiRoute, Limit: many}}, wrap: func(m *ratelimit.Middleware) http.Handler {
			r := chi.NewRouter()
			r.Use(m.Handler)
			r.Get("/", ok.ServeHTTP)
			return r
		}, want: []string{`rule "route": no request has a route yet when its key is taken`}},
		"a route that net/http does not know yet": {rules: []ratelimit.Rule{{Name: "route", Key: muxRoute, Limit: many}}, wrap: func(m *ratelimit.Middleware) http.Handler {
			return m.Handler(mux)
		}, want: []string{`ask the router (net/http: keyfunc.Mux(mux); chi: keyfunc.Route with Find of the router that uses the middleware, as in ExampleRoute_chi)`}},
		"a route that is never known": {rules: []ratelimit.Rule{{Name: "route", Key: chiRoute, Limit: many}}, wrap: func(m *ratelimit.Middleware) http.Handler {
			r := chi.NewRouter()
			r.Get("/", ok.ServeHTTP)
			return m.Handler(r)
		}, want: []string{`rule "route": no request has a route yet when its key is taken`}},
		"requests to no route": {rules: []ratelimit.Rule{{Name: "mux", Key: keyfunc.Mux(http.NewServeMux()), Limit: many}}, times: 500},
		"a route that it knows": {rules: []ratelimit.Rule{{Name: "route", Key: chiRoute, Limit: many}}, wrap: func(m *ratelimit.Middleware) http.Handler {
			r := chi.NewRouter()
			r.With(m.Handler).Get("/", ok.ServeHTTP)
			return r
		}},
		"some requests have no route": {rules: []ratelimit.Rule{{Name: "mux", Key: keyfunc.Mux(mux), Limit: many}}, wrap: func(m *ratelimit.Middleware) http.Handler {
			n := 0
			return m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				if n++; n == 1 {
					times(50, m.Handler(ok), "GET /nothing")
				}
			}))
		}},
		"a route on each route of a chi group": {rules: []ratelimit.Rule{{Name: "route", Key: chiRoute, Limit: many}}, wrap: func(m *ratelimit.Middleware) http.Handler {
			r := chi.NewRouter()
			r.Route("/", func(r chi.Router) { r.With(m.Handler).Get("/", ok.ServeHTTP) })
			return r
		}},
		"chi's RealIP in front": {rules: []ratelimit.Rule{perIP}, header: []string{"X-Forwarded-For", "203.0.113.7, 10.0.0.1"}, wrap: func(m *ratelimit.Middleware) http.Handler {
			return chimiddleware.RealIP(m.Handler(ok)) //nolint:staticcheck // the mistake that is looked for
		}, want: []string{`rule "per-ip": RemoteAddr is what X-Forwarded-For says. If middleware in front, such as chi's RealIP, copies it`, `If there is none, the client made it up`}},
		"RealIP by X-Real-IP": {rules: []ratelimit.Rule{perIP}, header: []string{"X-Real-IP", "203.0.113.7"}, wrap: func(m *ratelimit.Middleware) http.Handler {
			return chimiddleware.RealIP(m.Handler(ok)) //nolint:staticcheck // as above
		}, want: []string{`RemoteAddr is what X-Real-Ip says`}},
		"X-Real-IP alone": {rules: []ratelimit.Rule{perIP}, header: []string{"X-Real-IP", "203.0.113.7"}},
		"messages behind Handler": {rules: []ratelimit.Rule{perIP}, wrap: func(m *ratelimit.Middleware) http.Handler {
			return m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				for range 3 {
					if _, err := m.Take(r); err != nil {
						t.Error(err)
					}
				}
			}))
		}},
		"nobody has a key": {rules: []ratelimit.Rule{perIP, {Name: "user", Key: keyfunc.Header("User"), Limit: many}}, times: 1200,
			want: []string{`rule "user": 1000 of the first 1000 requests had no key ("keyfunc: no key: no header`}},
		"somebody has a key":          {rules: []ratelimit.Rule{perIP, {Name: "user", Key: keyfunc.First(keyfunc.Header("User"), keyfunc.Header("Key")), Limit: many}}, times: 1200, header: []string{"Key", "k"}},
		"nobody has the required key": {rules: []ratelimit.Rule{perIP, {Name: "user", Key: keyfunc.Required(keyfunc.Header("User"), 401), Limit: many}}, times: 1200},
		"an API key alone":            {rules: []ratelimit.Rule{{Name: "key", Key: keyfunc.APIKey("Key"), Limit: many}}, header: []string{"Key", "k"}, want: []string{`rule "key" is keyed by an API key`}},
		"an API key and per IP":       {rules: []ratelimit.Rule{{Name: "key", Key: keyfunc.APIKey("Key"), Limit: many}, perIP}, header: []string{"Key", "k"}},
		"first an API key alone":      {rules: []ratelimit.Rule{{Name: "key", Key: keyfunc.First(keyfunc.APIKey("Key"), keyfunc.IP), Limit: many}}, header: []string{"Key", "k"}, want: []string{`rule "key" is keyed by an API key`}},
		"never matched":               {rules: []ratelimit.Rule{perIP, {Name: "typo", Match: []string{"GET /nowhere"}, Key: keyfunc.IP, Limit: many}}, times: 1200, want: []string{`rule "typo": 0 of the first 1000 requests matched it`}},
		"always skipped":              {rules: []ratelimit.Rule{perIP, {Name: "user", Key: keyfunc.Optional(keyfunc.Header("User")), Limit: many}}, times: 1200, want: []string{`rule "user": 1000 of the first 1000 requests were skipped by its Key`}},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			m := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: c.rules, DenialLogRate: -1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			h := m.Handler(ok)
			if c.wrap != nil {
				h = c.wrap(m)
			}
			for i := range cmp.Or(c.times, 25) {
				r := request("GET /", c.header...)
				if c.times > 1000 {
					r.RemoteAddr = fmt.Sprintf("192.0.2.%d:1", i%200)
				}
				h.ServeHTTP(httptest.NewRecorder(), r)
			}
			got := strings.ReplaceAll(log.String(), `\"`, `"`)
			for _, want := range c.want {
				if !strings.Contains(got, want) {
					t.Errorf("no hint %q", want)
				}
			}
			if n := strings.Count(got, "\n"); n != min(len(c.want), 1) {
				t.Errorf("%d lines, want %d:\n%s", n, len(c.want), got)
			}
		})
	}
}

// Behind a load balancer every request may come from another of its addresses.
func TestAProxyIsHintedAtOnce(t *testing.T) {
	var log bytes.Buffer
	limit := algorithms.PerHour(1_000_000)
	m := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Rules: []ratelimit.Rule{{Name: "a", Key: keyfunc.IP, Limit: limit}, {Name: "b", Key: keyfunc.IP, Limit: limit}}})
	h := m.Handler(ok)
	for i := range 200 {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = fmt.Sprintf("10.0.0.%d:1", i)
		r.Header.Set("X-Forwarded-For", "203.0.113.7")
		if i >= 100 {
			r.Header.Set("Forwarded", "for=203.0.113.7")
		}
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	if strings.Contains(log.String(), "10.0.0.") { // whoever it is wants to be trusted
		t.Errorf("a sender is named:\n%s", log.String())
	}
	if got := strings.Count(log.String(), "that is not trusted"); got != 4 { // of two rules and two headers
		t.Errorf("%d lines:\n%s", got, log.String())
	}
}

// An h2c handler behind the limiter would take over connections, whose requests the
// limiter does not see. So their beginning is refused, even if no rule matches it. What
// net/http itself serves is limited.
func TestAnH2CHandlerBehindTheLimiter(t *testing.T) {
	var log bytes.Buffer
	var served atomic.Int64
	m := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Skip: []string{"/skipped"}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Rules: []ratelimit.Rule{{Name: "login", Match: []string{"/login"}, Key: keyfunc.IP, Limit: algorithms.Limit{Rate: 2, Period: time.Hour, Algorithm: algorithms.SlidingLog}}}})
	start := func(http2 bool) *httptest.Server {
		server := httptest.NewUnstartedServer(m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) })))
		server.Config.Protocols = new(http.Protocols)
		server.Config.Protocols.SetHTTP1(true)
		server.Config.Protocols.SetUnencryptedHTTP2(http2)
		server.Start()
		t.Cleanup(server.Close)
		return server
	}

	without := start(false)
	for range 2 {
		conn, err := net.Dial("tcp", without.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusBadRequest || !resp.Close {
			t.Errorf("status %d, closed %t; want 400 and the connection's end", resp.StatusCode, resp.Close)
		}
		resp.Body.Close()
		conn.Close()
	}
	without.Close() // waits for the handlers
	if got := log.String(); served.Load() != 0 || strings.Count(got, "\n") != 1 || !strings.Contains(got, "put the limiter inside the h2c handler") {
		t.Errorf("%d served, want none; logged, where one line was wanted:\n%s", served.Load(), got)
	}

	client := &http.Client{Transport: &http.Transport{Protocols: new(http.Protocols)}}
	client.Transport.(*http.Transport).Protocols.SetUnencryptedHTTP2(true)
	with := start(true)
	for i, want := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} {
		resp, err := client.Get(with.URL + "/login")
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.ProtoMajor != 2 || resp.StatusCode != want {
			t.Errorf("request %d: HTTP/%d, status %d; want %d", i, resp.ProtoMajor, resp.StatusCode, want)
		}
	}
	client.CloseIdleConnections()
}
