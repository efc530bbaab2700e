package algorithms

import (
	"cmp"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// What FailFast sets, for a budget of 50 ms: a command that the budget gives up
// on must not hold its connection for long.
const (
	fastStep   = 100 * time.Millisecond
	fastReload = 5 * time.Second
)

// FailFast sets those of a go-redis client's options to what a rate limiter
// needs that were left at zero, and returns o:
//
//	client := redis.NewClient(algorithms.FailFast(&redis.Options{Addr: "localhost:6379"}))
//
// With go-redis' own defaults, a call to a server that refuses connections takes
// two seconds and one to a server that hangs five; after a failover of a cluster,
// a minute passes before the client looks for the new master. FailFast
// has commands heed their context's deadline, dials and sends once, waits 100 ms
// for each step, and looks at a cluster every 5 s. It also switches off the
// handshakes that only other uses need. What is already set stays.
//
// Give the limiter a client of its own if your other commands need to be
// patient.
func FailFast[O redis.Options | redis.ClusterOptions | redis.FailoverOptions](o *O) *O {
	switch o := any(o).(type) {
	case *redis.Options:
		o.ContextTimeoutEnabled, o.DisableIdentity = true, true
		failOnce(&o.MaxRetries, &o.DialerRetries)
		soon(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
		quiet(&o.MaintNotificationsConfig)
	case *redis.ClusterOptions:
		o.ContextTimeoutEnabled, o.DisableIdentity = true, true
		failOnce(&o.MaxRetries, &o.DialerRetries)
		soon(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
		quiet(&o.MaintNotificationsConfig)
		o.MaxRedirects = cmp.Or(o.MaxRedirects, 2) // MOVED, then ASK
		o.ClusterStateReloadInterval = cmp.Or(o.ClusterStateReloadInterval, fastReload)
		o.FailingTimeoutSeconds = cmp.Or(o.FailingTimeoutSeconds, 1)
	case *redis.FailoverOptions:
		o.ContextTimeoutEnabled, o.DisableIdentity = true, true
		failOnce(&o.MaxRetries, &o.DialerRetries)
		soon(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
	}
	return o
}

func failOnce(retries, dials *int) {
	*retries, *dials = cmp.Or(*retries, -1), cmp.Or(*dials, 1)
}

func soon(timeouts ...*time.Duration) {
	for _, t := range timeouts {
		*t = cmp.Or(*t, fastStep)
	}
}

func quiet(c **maintnotifications.Config) {
	if *c == nil {
		*c = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	}
}
