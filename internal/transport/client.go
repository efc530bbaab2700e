package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Client sends commands to Redis. All of go-redis' clients do: Client,
// ClusterClient, Ring and those backed by Sentinel.
type Client interface {
	// Process sends the command and sets its result.
	Process(ctx context.Context, cmd redis.Cmder) error
}

// A pipeliner sends several commands at once. Sharded clients must be one.
type pipeliner interface {
	Pipeline() redis.Pipeliner
}

// A clientKind is everything that depends on the kind of a client. Nothing else
// looks at a client's type.
type clientKind struct {
	invalid  error                  // why it cannot be used
	own      bool                   // one of go-redis' own, so the options are known
	options  redis.Options          // of own clients: how they connect and fail
	name     string                 // of the server; "redis" if it is unknown or one of several
	Sharded  bool                   // keys are spread over servers
	direct   bool                   // commands return when their context ends, so no goroutine is needed
	pipeline func() redis.Pipeliner // sends several commands at once; nil if the client cannot

	// only is the client itself where it has one server and is go-redis' own.
	only *redis.Client
	// node returns the client of the server that holds a key; nil if that is
	// unknown. knowsNodes says that it never waits.
	node       func(key string) (*redis.Client, error)
	knowsNodes bool
	// each calls do for each server that decides; nil if they are unknown.
	each func(ctx context.Context, do func(ctx context.Context, node *redis.Client) error) error
	// reload makes the client look at its cluster again, in the background; nil if there is none.
	reload func(ctx context.Context)
}

// kindOf resolves the kind of a client, which must not be nil. sharded is what
// the caller says about a client that is not go-redis' own.
func kindOf(c Client, sharded bool) clientKind {
	k := clientKind{name: "redis", Sharded: sharded}
	if p, ok := c.(pipeliner); ok {
		k.pipeline = p.Pipeline
	}
	switch c := c.(type) {
	case *redis.Client:
		k.own, k.only, k.options, k.name = true, c, *c.Options(), c.Options().Addr
		k.direct = heedsDeadlines(&k.options) && fromGoRedis(k.options.Dialer, "NewDialer")
		k.each = func(ctx context.Context, do func(context.Context, *redis.Client) error) error { return do(ctx, c) }
	case *redis.ClusterClient:
		o := c.Options()
		k.own, k.options, k.Sharded = true, clusterOptions(o), true
		k.direct = heedsDeadlines(&k.options) && o.Dialer == nil && o.ClusterSlots == nil && fromGoRedis(o.NewClient, "")
		k.each, k.reload = c.ForEachMaster, c.ReloadState
		k.node = func(key string) (*redis.Client, error) { return c.MasterForKey(context.Background(), key) }
	case *redis.Ring:
		o := c.Options()
		k.own, k.options, k.Sharded = true, ringOptions(o), true
		k.direct = heedsDeadlines(&k.options) && o.Dialer == nil && fromGoRedis(o.NewClient, "")
		k.each, k.node, k.knowsNodes = c.ForEachShard, c.GetShardClientForKey, true
	case redis.Pipeliner:
		k.invalid = errors.New("a pipeline only queues commands; pass the client that made it")
	default:
		if c, ok := c.(interface{ ReloadState(ctx context.Context) }); ok {
			k.reload = c.ReloadState
		}
	}
	if k.invalid == nil && k.Sharded && k.pipeline == nil {
		k.invalid = fmt.Errorf("a sharded client needs the method Pipeline; %T has none", c)
	}
	return k
}

// clusterOptions are the options of a cluster's nodes.
func clusterOptions(o *redis.ClusterOptions) redis.Options {
	return withDefaults(redis.Options{
		Protocol: o.Protocol, TLSConfig: o.TLSConfig, OnConnect: o.OnConnect,
		CredentialsProvider: o.CredentialsProvider, CredentialsProviderContext: o.CredentialsProviderContext,
		StreamingCredentialsProvider: o.StreamingCredentialsProvider,
		ContextTimeoutEnabled:        o.ContextTimeoutEnabled, MaxRetries: o.MaxRetries, DialerRetries: o.DialerRetries,
		DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout, PoolTimeout: o.PoolTimeout,
		MinIdleConns: o.MinIdleConns,
	})
}

// ringOptions are the options of a ring's shards.
func ringOptions(o *redis.RingOptions) redis.Options {
	return withDefaults(redis.Options{
		Protocol: o.Protocol, TLSConfig: o.TLSConfig, OnConnect: o.OnConnect,
		CredentialsProvider: o.CredentialsProvider, CredentialsProviderContext: o.CredentialsProviderContext,
		StreamingCredentialsProvider: o.StreamingCredentialsProvider, Limiter: o.Limiter,
		ContextTimeoutEnabled: o.ContextTimeoutEnabled, MaxRetries: o.MaxRetries, DialerRetries: o.DialerRetries,
		DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout, PoolTimeout: o.PoolTimeout,
		MinIdleConns: o.MinIdleConns,
	})
}

// withDefaults fills in the defaults of go-redis, which clients of several
// servers leave to those of each server.
func withDefaults(o redis.Options) redis.Options {
	if o.Protocol < 2 {
		o.Protocol = 3
	}
	o.DialerRetries = cmp.Or(o.DialerRetries, 5)
	o.DialTimeout = cmp.Or(o.DialTimeout, 5*time.Second)
	o.ReadTimeout = cmp.Or(o.ReadTimeout, 5*time.Second)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, o.ReadTimeout)
	o.PoolTimeout = cmp.Or(o.PoolTimeout, o.ReadTimeout+time.Second)
	return o
}

// heedsDeadlines reports whether a command of a client with these options
// returns when its context ends. Negative timeouts mean that go-redis sets no
// deadlines, RESP3 lets it wait for push messages without one, and functions of
// the user's run while a connection is made.
func heedsDeadlines(o *redis.Options) bool {
	return o.ContextTimeoutEnabled && o.ReadTimeout >= 0 && o.WriteTimeout >= 0 && o.Protocol == 2 &&
		o.OnConnect == nil && o.Limiter == nil &&
		o.CredentialsProvider == nil && o.CredentialsProviderContext == nil && o.StreamingCredentialsProvider == nil
}

// fromGoRedis reports whether go-redis itself defines a function, in a function
// of that name unless it is "". Its defaults are ordinary values of its options.
func fromGoRedis(function any, in string) bool {
	f := runtime.FuncForPC(reflect.ValueOf(function).Pointer())
	return f != nil && strings.HasPrefix(f.Name(), "github.com/redis/go-redis/v9.") && strings.Contains(f.Name(), in)
}
