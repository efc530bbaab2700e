// Package shop is the common part of examples/chi and examples/stdlib: the handlers of
// a shop, and a process with flags, Redis, a file of rules, metrics and an orderly end.
package shop

import (
	"context"
	"errors"
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

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/seed75154129/ratelimit"
	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
	"github.com/seed75154129/ratelimit/middleware/admin"
	"github.com/seed75154129/ratelimit/middleware/metrics"
	"github.com/seed75154129/ratelimit/middleware/rulefile"
)

// A Shop is a service: its rules, for clients behind these proxies, and its routes,
// behind these limits.
type Shop struct {
	Rules  func(keyfunc.Proxies) []ratelimit.Rule
	Routes func(*ratelimit.Middleware) http.Handler
}

// Main serves the shop as the process's flags say, until it is told to end.
func (s Shop) Main() {
	c, err := parse(os.Args[1:])
	if err != nil {
		exit(2, err)
	}
	if err := s.serve(c); err != nil {
		exit(1, err)
	}
}

func exit(code int, err error) {
	fmt.Fprintln(os.Stderr, "example:", strings.ReplaceAll(err.Error(), "\n", "; "))
	os.Exit(code)
}

// Login admits every client, unless it sends a wrong password, as
// "curl -X POST -u alice:wrong" does.
func Login(w http.ResponseWriter, r *http.Request) {
	if _, password, given := r.BasicAuth(); given && password != "secret" {
		w.Header().Set("WWW-Authenticate", "Basic")
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	Respond(`{"user":"alice"}`)(w, r)
}

// Respond always answers the same JSON.
func Respond(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, body+"\n") // nobody to tell
	}
}

// operators is the handler for operators, which clients must not reach.
func operators(limit *ratelimit.Middleware) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.Handler())
	mux.Handle("/ratelimit/", admin.Handler(limit))
	return mux
}

func (s Shop) serve(c config) error {
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
	limit, err := s.newLimit(ctx, c, limiter)
	if err != nil {
		return err
	}
	if err := metrics.Register(prometheus.DefaultRegisterer, limit); err != nil {
		return err
	}
	failed := make(chan error, 2)
	public, err := listen(ctx, "-addr", c.addr, s.Routes(limit), failed)
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
func (s Shop) newLimit(ctx context.Context, c config, limiter algorithms.Limiter) (*ratelimit.Middleware, error) {
	user, plan := c.proxies.UserID("X-User-ID"), c.proxies.UserID("X-Plan")
	limits := ratelimit.Config{
		Limiter: limiter,
		Rules:   s.Rules(c.proxies),
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

// warm connects to Redis before the first request. The service also starts without
// Redis.
func warm(guard *failmode.Guard) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := guard.Warm(ctx); err != nil {
		slog.Warn("example: Redis is not ready", "error", err)
	}
}
