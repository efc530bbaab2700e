// Chi is a service on a chi router with three layers of rate limits:
// by address, by user, and a strict one on the login routes. A request is one
// decision over all that apply; a request that is denied is charged nothing.
//
//	go run ./examples/chi                                  # counts in process
//	go run ./examples/chi -redis redis://localhost:6379    # counts in Redis
//	go run ./examples/chi -rules examples/rules/tiers.yaml # the rules of a file, which may change
//	go run ./examples/chi -admin 127.0.0.1:8081            # metrics, and http://127.0.0.1:8081/ratelimit/
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
	"github.com/seed75154129/ratelimit/middleware/metrics"
	"github.com/seed75154129/ratelimit/middleware/rulefile"
)

func main() {
	c, err := parse(os.Args[1:])
	if err != nil {
		exit(2, err)
	}
	if err := serve(c); err != nil {
		exit(1, err)
	}
}

func exit(code int, err error) {
	fmt.Fprintln(os.Stderr, "example:", strings.ReplaceAll(err.Error(), "\n", "; "))
	os.Exit(code)
}

func rules(proxies keyfunc.Proxies) []ratelimit.Rule {
	return []ratelimit.Rule{{
		Name:  "per-ip",
		Key:   proxies.IP(),
		Limit: algorithms.PerMinute(200), // a sliding window
		Fail:  failmode.Open,             // without Redis, better unlimited than refused
	}, {
		Name:  "per-user",
		Key:   keyfunc.Optional(proxies.UserID("X-User-ID")), // per-ip limits who has none
		Limit: algorithms.Limit{Rate: 100, Period: time.Minute, Algorithm: algorithms.TokenBucket},
		Fail:  failmode.Local, // without Redis, counted in this process
	}, {
		Name:  "login",
		Match: []string{"POST /auth/login", "POST /auth/register", "POST /auth/reset-password"},
		Key:   proxies.IP(),
		Limit: algorithms.Limit{Rate: 5, Period: time.Minute, Algorithm: algorithms.FixedWindow},
		Fail:  failmode.Closed, // without Redis, nobody guesses passwords
	}}
}

func routes(limit *ratelimit.Middleware) http.Handler {
	r := chi.NewRouter()
	r.Use(limit.Handler)
	r.Get("/healthz", respond(`{"status":"ok"}`))
	r.Get("/api/items", respond(`{"items":["apple","pear"]}`))
	r.Post("/api/reports", respond(`{"report":"in progress"}`))
	r.Post("/auth/login", login)
	r.Post("/auth/register", respond(`{"user":"alice"}`))
	r.Post("/auth/reset-password", respond(`{"mail":"sent"}`))
	return r
}

// login is for everybody who does not send a wrong password, as
// "curl -X POST -u alice:wrong" does.
func login(w http.ResponseWriter, r *http.Request) {
	if _, password, given := r.BasicAuth(); given && password != "secret" {
		w.Header().Set("WWW-Authenticate", "Basic")
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	respond(`{"user":"alice"}`)(w, r)
}

func respond(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, body+"\n") // nobody to tell
	}
}

// operators is what the public must not reach.
func operators(limit *ratelimit.Middleware) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.Handler())
	mux.Handle("/ratelimit/", limit.Admin())
	return mux
}

func serve(c config) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var limiter algorithms.Limiter = new(algorithms.Memory)
	if c.client != nil {
		defer func() { _ = c.client.Close() }()
		guard := &failmode.Guard{Limiter: &algorithms.Redis{Client: c.client, Namespace: "example"}}
		defer func() { _ = guard.Close() }()
		warm(guard)
		limiter = guard
	}
	limit, err := newLimit(ctx, c, limiter)
	if err != nil {
		return err
	}
	if err := metrics.Register(prometheus.DefaultRegisterer, limit); err != nil {
		return err
	}
	failed := make(chan error, 2)
	public, err := listen(ctx, "-addr", c.addr, routes(limit), failed)
	if err != nil {
		return err
	}
	servers, says := []*http.Server{public}, "listening on http://"+public.Addr
	if c.admin != "" {
		private, err := listen(ctx, "-admin", c.admin, operators(limit), failed)
		if err != nil {
			return err
		}
		servers, says = append(servers, private), says+"\nfor operators: http://"+private.Addr+"/ratelimit/ and /metrics"
	}
	fmt.Println(says)
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	stop() // a second signal ends the process at once
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, server := range servers {
		err = errors.Join(err, server.Shutdown(ctx))
	}
	return err
}

// newLimit takes the rules of -rules, and new ones whenever the file changes or
// the process gets SIGHUP. A bad file is fatal now; later it is logged and
// counted, and the rules stay.
func newLimit(ctx context.Context, c config, limiter algorithms.Limiter) (*ratelimit.Middleware, error) {
	user, plan := c.proxies.UserID("X-User-ID"), c.proxies.UserID("X-Plan")
	limits := ratelimit.Config{
		Limiter: limiter,
		Rules:   rules(c.proxies),
		Skip:    []string{"GET /healthz"},
		TierFor: func(r *http.Request) string { tier, _ := plan.Resolve(r); return tier },
	}
	if c.rules == "" {
		return ratelimit.New(limits)
	}
	loader := &rulefile.Loader{
		Source: rulefile.File(c.rules),
		Keys:   map[string]keyfunc.Key{"ip": c.proxies.IP(), "user": keyfunc.Optional(user)},
		Tiers:  []string{"pro", "internal"},
	}
	var err error
	if limits.Rules, err = loader.Load(ctx); err != nil {
		return nil, err
	}
	limit, err := ratelimit.New(limits)
	if err != nil {
		return nil, err
	}
	go loader.Watch(ctx, limit)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		for range hangups {
			_ = loader.Reload(ctx, limit) // logged and counted
		}
	}()
	return limit, nil
}

// listen serves a handler. The server has the address at which it listens.
func listen(ctx context.Context, name, addr string, handler http.Handler, failed chan<- error) (*http.Server, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s %q: %w; choose another address; port 0 is any free one", name, addr, err)
	}
	server := &http.Server{
		Addr: listener.Addr().String(), Handler: handler,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: time.Minute,
	}
	go func() { failed <- server.Serve(listener) }()
	return server, nil
}

// warm spares the first request the connection to Redis. The service starts
// without Redis, too.
func warm(guard *failmode.Guard) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := guard.Warm(ctx); err != nil {
		slog.Warn("example: Redis is not ready", "error", err)
	}
}

type config struct {
	addr    string
	admin   string                // "" serves nothing for operators
	rules   string                // "" takes those in code
	client  redis.UniversalClient // nil counts in process
	proxies keyfunc.Proxies
}

func parse(args []string) (c config, err error) {
	flags := flag.NewFlagSet("example", flag.ContinueOnError)
	flags.StringVar(&c.addr, "addr", "127.0.0.1:8080", "`host:port` to listen on")
	flags.TextVar(&c.proxies, "trusted-proxies", keyfunc.Proxies{},
		"`networks` whose X-Forwarded-For, X-User-ID and X-Plan are believed, such as 10.0.0.0/8,192.0.2.7")
	flags.StringVar(&c.rules, "rules", "", "`file` with the rules, read again when it changes and on SIGHUP (default: those in code)")
	flags.StringVar(&c.admin, "admin", "", "`host:port` for metrics and the operators' page; never public (default: none)")
	store := flags.String("redis", "", "`URL` of the Redis that counts, or host:port,host:port for a cluster (default: in process)")

	flags.SetOutput(io.Discard) // main prints errors, without the usage
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(os.Stdout)
		flags.PrintDefaults()
		os.Exit(0)
	case err != nil:
		return c, fmt.Errorf("%w; -h lists the flags", err)
	case flags.NArg() > 0:
		return c, fmt.Errorf("unexpected argument %q; -h lists the flags", flags.Arg(0))
	}
	for name, addr := range map[string]string{"-addr": c.addr, "-admin": c.admin} {
		if _, err := net.ResolveTCPAddr("tcp", addr); err != nil && addr != "" {
			return c, fmt.Errorf("%s %q: %w; write host:port", name, addr, err)
		}
	}
	if c.client, err = newClient(*store); err != nil {
		return c, fmt.Errorf("-redis %w; write redis://host:6379/0, rediss://… for TLS, unix:///… for a socket, or host:port,host:port for a cluster", err)
	}
	return c, nil
}

func newClient(store string) (redis.UniversalClient, error) {
	logging.Disable() // the limiter says when Redis is away; go-redis would with every dial

	switch addrs := strings.Split(store, ","); {
	case store == "":
		return nil, nil
	case len(addrs) > 1 && !strings.Contains(store, "://"):
		for _, addr := range addrs {
			if _, _, err := net.SplitHostPort(addr); err != nil {
				return nil, fmt.Errorf("%q: %w", store, err)
			}
		}
		return redis.NewClusterClient(algorithms.FailFast(&redis.ClusterOptions{Addrs: addrs})), nil
	}
	o, err := redis.ParseURL(store)
	if err != nil {
		if i := strings.LastIndexByte(store, '@'); i >= 0 { // never print a password
			store, err = "…"+store[i:], errors.New("no URL; escape special characters of the password")
		}
		return nil, fmt.Errorf("%q: %w", store, err)
	}
	return redis.NewClient(algorithms.FailFast(o)), nil
}
