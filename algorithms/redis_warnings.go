package algorithms

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// warnings names the options of Client that make an outage of Redis slower to
// notice or to get over than it has to be, and what to set instead. Decisions
// keep to the budget all the same. Of clients that are not go-redis' own it
// knows nothing.
func (r *Redis) warnings() []string {
	switch r.Client.(type) {
	case *redis.Client, *redis.ClusterClient, *redis.Ring:
	default:
		return nil
	}
	o := optionsOf(r.Client)
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
	tooLong := func(name string, wait time.Duration) {
		if wait > time.Second {
			warn("%s is %s; %s is enough", name, wait, fastStep)
		}
	}
	tooLong("DialTimeout", o.DialTimeout)
	if !o.ContextTimeoutEnabled { // else the budget bounds these
		tooLong("ReadTimeout", o.ReadTimeout)
		tooLong("PoolTimeout", o.PoolTimeout)
	}
	if c, ok := r.Client.(*redis.ClusterClient); ok {
		if every := c.Options().ClusterStateReloadInterval; every > 30*time.Second {
			warn("ClusterStateReloadInterval is %s: what moved without an error is noticed late; %s is enough", every, fastReload)
		}
	}
	return warned
}

// serverWarnings asks the servers whether they throw out keys to make room, which
// would free whoever is limited. It takes as long as the context lets it.
func (r *Redis) serverWarnings(ctx context.Context) ([]string, error) {
	if err := r.ready(); err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var warned []string
	ask := func(ctx context.Context, c Client, name string) error {
		cmd := redis.NewStringCmd(ctx, "info", "memory")
		if err := c.Process(ctx, noRetry{cmd}); err != nil {
			return fmt.Errorf("info: %w", err)
		}
		_, policy, _ := strings.Cut(cmd.Val(), "maxmemory_policy:")
		policy, _, _ = strings.Cut(policy, "\r\n")
		if policy != "" && policy != "noeviction" {
			mu.Lock()
			defer mu.Unlock()
			warned = append(warned, fmt.Sprintf("%s: maxmemory-policy is %s: under memory pressure clients that are limited are forgotten; "+
				"give the limiter a Redis of its own with noeviction", name, policy))
		}
		return nil
	}
	err := r.sender.within(ctx, func() error {
		if c, ok := r.Client.(*redis.ClusterClient); ok {
			return c.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return ask(ctx, c, c.Options().Addr) })
		}
		return ask(ctx, r.Client, r.names(0)[0])
	})
	mu.Lock() // what was left behind may still find something
	defer mu.Unlock()
	return slices.Clone(warned), err
}
