// Gateway is a reverse proxy with limits for each client and for each upstream. The
// rules are in a file, and it applies changes while it runs. WebSockets and event
// streams pass through. Metrics are on a port of their own.
//
//	go run ./examples/gateway -rules examples/gateway/rules.yaml \
//		-upstream shop=http://127.0.0.1:9001 -upstream chat=http://127.0.0.1:9002
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
	"github.com/seed75154129/ratelimit/middleware/rulefile"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
}

// run serves until ctx is done.
func run(ctx context.Context, args []string, stdout io.Writer) error {
	g := gateway{upstreams: make(map[string]*url.URL)}
	flags := flag.NewFlagSet("gateway", flag.ContinueOnError)
	addr := flags.String("addr", "127.0.0.1:8080", "`host:port` for clients")
	admin := flags.String("admin", "127.0.0.1:9090", "`host:port` for operators: /ratelimit/, /metrics and /healthz; never public")
	rules := flags.String("rules", "rules.yaml", "the rule `file`; SIGHUP reads it at once")
	store := flags.String("redis", "", "`URL` of the Redis that counts (default: in process)")
	flags.TextVar(&g.proxies, "trusted-proxies", keyfunc.Proxies{}, "`networks` whose X-Forwarded-For is believed")
	flags.Func("upstream", "`NAME=URL` of an upstream, which gets the requests for /NAME/…", g.addUpstream)
	flags.SetOutput(io.Discard) // main prints errors, without the usage
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(stdout)
		flags.PrintDefaults()
		return nil
	case err != nil:
		return fmt.Errorf("%w; -h lists the flags", err)
	}
	if len(g.upstreams) == 0 {
		return errors.New("no upstream; write -upstream NAME=URL for each")
	}
	g.loader.Source = rulefile.File(*rules)
	g.limiter = new(algorithms.Memory)
	if *store != "" {
		o, err := redis.ParseURL(*store)
		if err != nil {
			return fmt.Errorf("-redis: %w", err)
		}
		client := redis.NewClient(algorithms.FailFast(o))
		defer func() { _ = client.Close() }()
		guard := &failmode.Guard{Limiter: &algorithms.Redis{Client: client, Namespace: "gateway"}}
		defer func() { _ = guard.Close() }()
		g.limiter = guard
	}
	if err := g.start(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go g.loader.Watch(ctx, g.limit)
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	go func() {
		for {
			select {
			case <-hangup:
				_ = g.loader.Reload(ctx, g.limit) // it is logged and counted
			case <-ctx.Done():
				return
			}
		}
	}()
	return serve(ctx, stdout, listen{"listening", *addr, g.public()}, listen{"admin", *admin, g.admin()})
}

// upstreamName matches names that are the same in a pattern and in a path.
var upstreamName = regexp.MustCompile(`^[\w-]+$`)

// addUpstream adds an upstream such as "shop=http://127.0.0.1:9001".
func (g *gateway) addUpstream(s string) error {
	name, to, _ := strings.Cut(s, "=")
	u, err := url.Parse(to)
	switch {
	case err != nil:
		return err
	case !upstreamName.MatchString(name) || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return errors.New("write NAME=URL, such as shop=http://127.0.0.1:9001; a name has letters, digits, - and _")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return errors.New("the URL may have a path, but no user, query or fragment")
	case g.upstreams[name] != nil:
		return fmt.Errorf("the upstream %s is there twice; write each name once", name)
	}
	g.upstreams[name] = u
	return nil
}

// A listen is an address and its handler.
type listen struct {
	what, addr string
	handler    http.Handler
}

// serve answers at all addresses until ctx is done. Then it lets requests end; it
// does not wait for WebSockets.
func serve(ctx context.Context, stdout io.Writer, all ...listen) error {
	failed := make(chan error, len(all))
	servers := make([]*http.Server, 0, len(all))
	for _, l := range all {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", l.addr)
		if err != nil {
			return errors.Join(fmt.Errorf("%s: %w", l.what, err), closeAll(servers))
		}
		server := newServer(l.handler)
		servers = append(servers, server)
		go func() { failed <- server.Serve(listener) }()
		_, _ = fmt.Fprintf(stdout, "%s on http://%s\n", l.what, listener.Addr()) // nobody to tell
	}
	select {
	case err := <-failed:
		return errors.Join(err, closeAll(servers))
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	var errs []error
	for _, server := range servers {
		errs = append(errs, server.Shutdown(ctx))
	}
	return errors.Join(errs...)
}

func closeAll(servers []*http.Server) error {
	var errs []error
	for _, server := range servers {
		errs = append(errs, server.Close())
	}
	return errors.Join(errs...)
}
