package failmode

import (
	"context"
	"io"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
)

// Redis returns a Guard that counts in Redis, for all processes with this namespace. It
// makes the client from a copy of the options, changed by [algorithms.FailFast]. The Guard
// connects in the background, when a Middleware is made with it or at its first use, and
// logs if that fails. Close closes the client, too.
//
// If options are nil or the namespace is invalid, [Guard.Validate] and Take return an
// error. For options that the Guard's Redis has beside these, such as a Budget, make the
// parts yourself.
func Redis[O redis.Options | redis.ClusterOptions | redis.FailoverOptions | redis.RingOptions](options *O, namespace string) *Guard {
	store := &algorithms.Redis{Namespace: namespace}
	g := &Guard{Limiter: store}
	if options == nil {
		return g
	}
	own := *options
	var client interface {
		algorithms.Client
		io.Closer
	}
	switch o := any(algorithms.FailFast(&own)).(type) {
	case *redis.Options:
		client = redis.NewClient(o)
	case *redis.ClusterOptions:
		client = redis.NewClusterClient(o)
	case *redis.FailoverOptions:
		client = redis.NewFailoverClient(o)
	case *redis.RingOptions:
		client = redis.NewRing(o)
	}
	store.Client, g.client = client, client
	return g
}

// connectTimeout bounds the connecting in the background: the first requests do it, too.
const connectTimeout = 5 * time.Second

// connect warms a Guard that has made its own client, in the background.
func (g *Guard) connect() {
	if g.client == nil {
		return
	}
	g.work.Begin(func() {
		ctx, cancel := context.WithTimeout(g.monitor.Context(), connectTimeout)
		defer cancel()
		if err := g.warm(ctx); err != nil && g.monitor.Context().Err() == nil {
			g.logger.Warn("ratelimit: Redis is not ready; until it is, rules follow their fail modes", "error", err)
		}
	})
}

// Connect begins to connect a Guard that [Redis] has made, before its first use. For any other
// it does nothing.
func (g *Guard) Connect() {
	if g.client != nil {
		g.ready()
	}
}
