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

// Warnings names the options of Client that make an outage of Redis slower to
// notice or to get over than it has to be, and what to set instead. Decisions
// keep to the budget all the same. Of clients that are not go-redis' own it
// knows nothing.
func (r *Redis) Warnings() []string {
	switch c := r.Client.(type) {
	case *redis.Client:
		o := c.Options()
		return warnings(o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries, map[string]time.Duration{
			"DialTimeout": o.DialTimeout, "ReadTimeout": o.ReadTimeout, "PoolTimeout": o.PoolTimeout,
		})
	case *redis.ClusterClient:
		o := c.Options()
		warned := warnings(o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries, map[string]time.Duration{
			"DialTimeout": o.DialTimeout, "ReadTimeout": o.ReadTimeout, "PoolTimeout": o.PoolTimeout,
		})
		if every := o.ClusterStateReloadInterval; every > 30*time.Second {
			warned = append(warned, fmt.Sprintf("ClusterStateReloadInterval is %s: what moved without an error is noticed late; %s is enough", every, fastReload))
		}
		return warned
	case *redis.Ring:
		o := c.Options()
		return warnings(o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries, map[string]time.Duration{
			"DialTimeout": o.DialTimeout, "ReadTimeout": o.ReadTimeout, "PoolTimeout": o.PoolTimeout,
		})
	}
	return nil
}

func warnings(heedsContext bool, retries, dials int, waits map[string]time.Duration) []string {
	var warned []string
	if !heedsContext {
		warned = append(warned, "ContextTimeoutEnabled is false: a command that is out of time keeps its connection and a goroutine until the client's own timeouts; set it")
	}
	if retries > 0 {
		warned = append(warned, fmt.Sprintf("MaxRetries is %d: commands of yours that time out are executed up to %d times (the limiter's never are); -1 is none", retries, retries+1))
	}
	if dials > 1 {
		warned = append(warned, fmt.Sprintf("DialerRetries is %d: each connection to a server that is gone is tried so often; 1 is once", dials))
	}
	long := []string{"DialTimeout", "ReadTimeout", "PoolTimeout"}
	if heedsContext {
		long = long[:1] // the budget bounds the others
	}
	for _, name := range long {
		if wait := waits[name]; wait > time.Second {
			warned = append(warned, fmt.Sprintf("%s is %s; %s is enough", name, wait, fastStep))
		}
	}
	return warned
}

// ServerWarnings asks the servers whether they throw out keys to make room, which
// would free whoever is limited. It takes as long as the context lets it.
func (r *Redis) ServerWarnings(ctx context.Context) ([]string, error) {
	if err := r.ready(); err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var warned []string
	ask := func(ctx context.Context, c Client, name string) error {
		cmd := redis.NewStringCmd(ctx, "info", "memory")
		if err := c.Process(ctx, noRetry{cmd}); err != nil {
			return fmt.Errorf("algorithms: redis: info: %w", err)
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
		return ask(ctx, r.Client, r.Names(0)[0])
	})
	mu.Lock() // what was left behind may still find something
	defer mu.Unlock()
	return slices.Clone(warned), err
}
