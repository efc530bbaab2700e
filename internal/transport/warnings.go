package transport

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Warnings lists the options of Client that make an outage of Redis slower to notice or to
// get over than it has to be, or with which a distant Redis never decides, and what to set
// instead. Decisions keep to the budget all the same. The options of clients that are not
// go-redis' own are unknown.
func (t *Transport) Warnings() []string {
	if !t.own {
		return nil
	}
	o := &t.options
	var warned []string
	warn := func(format string, args ...any) { warned = append(warned, fmt.Sprintf(format, args...)) }
	if !o.ContextTimeoutEnabled {
		warn("ContextTimeoutEnabled is false: a command that is out of time keeps its connection and a goroutine until the client's own timeouts; set it")
	}
	if o.MaxRetries > 0 {
		warn("MaxRetries is %d: commands of yours that time out are executed up to %d times (the limiter's never are); -1 is none", o.MaxRetries, o.MaxRetries+1)
	}
	if o.DialerRetries > 1 {
		warn("DialerRetries is %d: each connection to a server that is gone is tried so often; 1 is once", o.DialerRetries)
	}
	if o.Protocol == 3 && o.TLSConfig != nil {
		warn("Protocol is 3 with TLS: go-redis (since 9.23) may wait 50ms for push messages on a connection before it sends a command; 2 does not")
	}
	timeout := func(name string, wait time.Duration, bounded bool) {
		switch {
		case wait > time.Second && !bounded:
			warn("%s is %s; 1s is enough", name, wait)
		case wait > 0 && wait < min(t.limit, time.Second):
			warn("%s is %s, below Budget %s: a Redis that is farther away never decides; 1s is enough", name, wait, t.limit)
		}
	}
	timeout("DialTimeout", o.DialTimeout, false)
	timeout("ReadTimeout", o.ReadTimeout, o.ContextTimeoutEnabled) // the budget bounds it
	timeout("WriteTimeout", o.WriteTimeout, true)
	timeout("PoolTimeout", o.PoolTimeout, o.ContextTimeoutEnabled)
	return warned
}

// ServerWarnings asks the servers whether they may evict keys, which would free
// clients that are limited. It takes as long as the context allows.
func (t *Transport) ServerWarnings(ctx context.Context) ([]string, error) {
	type found struct {
		warned []string
		err    error
	}
	f, err := run(ctx, t, func() (f found) {
		var mu sync.Mutex
		ask := func(ctx context.Context, c Client, name string) error {
			about, err := info(ctx, "memory", func(cmd redis.Cmder) error { return c.Process(ctx, cmd) })
			policy := field(about, "maxmemory_policy")
			if err == nil && policy != "" && policy != "noeviction" {
				mu.Lock()
				defer mu.Unlock()
				f.warned = append(f.warned, fmt.Sprintf("%s: maxmemory-policy is %s: under memory pressure, Redis may evict limiter keys; "+
					"give the limiter a Redis of its own with noeviction", name, policy))
			}
			return err
		}
		if t.each == nil {
			f.err = ask(ctx, t.client, t.name)
		} else {
			f.err = t.each(ctx, func(ctx context.Context, c *redis.Client) error { return ask(ctx, c, c.Options().Addr) })
		}
		return f
	})
	if err = cmp.Or(err, f.err); err != nil {
		err = fmt.Errorf("info: %w", err)
	}
	return f.warned, err
}

// info asks a server for a section of INFO.
func info(ctx context.Context, section string, process func(redis.Cmder) error) (string, error) {
	cmd := redis.NewStringCmd(ctx, "info", section)
	if err := recovered(func() error { return process(noRetry{cmd}) }); err != nil {
		return "", err
	}
	return cmd.Result()
}

// field returns the value of a field of INFO, or "" if there is none.
func field(info, name string) string {
	_, value, _ := strings.Cut(info, "\r\n"+name+":")
	value, _, _ = strings.Cut(value, "\r\n")
	return value
}
