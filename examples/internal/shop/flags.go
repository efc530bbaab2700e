package shop

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
)

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
