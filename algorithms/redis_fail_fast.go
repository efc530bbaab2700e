package algorithms

import (
	"cmp"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// What FailFast sets. Decisions end with their budget; other commands, such as those by
// which go-redis looks for a cluster's nodes, must not wait much longer.
const (
	fastStep   = time.Second
	fastReload = 5 * time.Second
	// connLifetime bounds for how long processes may count on two servers after an address
	// has moved from one that is still well. A process opens two connections a minute for it
	// if it has ten.
	connLifetime = 5 * time.Minute
)

// FailFast fills zero-valued client options with values suited to rate limiting,
// and returns o:
//
//	client := redis.NewClient(algorithms.FailFast(&redis.Options{Addr: "localhost:6379"}))
//
// With go-redis' defaults, a call takes two seconds if the server refuses connections, and
// five seconds if the server hangs. After a failover of a cluster, a minute passes before
// the client looks for the new master. With FailFast, commands respect the deadline of
// their context, and dials and commands are not retried; only the client of a cluster may
// send commands of your own up to two more times. A dial, a read, a write or a wait for a
// connection takes at most a second, and less if the deadline comes first. The nodes of a
// cluster are looked up every 5 s. A connection is replaced after 4 to 6 minutes, so that
// an address that has come to mean another server is followed even if the old server still
// answers; a negative ConnMaxLifetime keeps connections.
//
// FailFast also switches off handshakes that rate limiting does not need. It sets Protocol
// to 2 unless the options need RESP3: with RESP3 over TLS, go-redis may wait 50 ms for
// push messages before it sends a command.
//
// If your other commands need more patience, give the limiter its own client.
func FailFast[O redis.Options | redis.ClusterOptions | redis.FailoverOptions | redis.RingOptions | redis.UniversalOptions](o *O) *O {
	switch o := any(o).(type) {
	case *redis.Options:
		o.ContextTimeoutEnabled, o.DisableIdentity = true, true
		expire(&o.ConnMaxLifetime, &o.ConnMaxLifetimeJitter)
		failOnce(&o.MaxRetries, &o.DialerRetries)
		soon(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
		resp2(&o.Protocol, o.PushNotificationProcessor != nil || o.ClientSideCache != nil || o.ClientSideCacheConfig != nil, &o.MaintNotificationsConfig)
	case *redis.ClusterOptions:
		o.ContextTimeoutEnabled, o.DisableIdentity = true, true
		expire(&o.ConnMaxLifetime, &o.ConnMaxLifetimeJitter)
		failOnce(&o.MaxRetries, &o.DialerRetries)
		soon(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
		resp2(&o.Protocol, o.PushNotificationProcessor != nil, &o.MaintNotificationsConfig)
		findNodes(&o.MaxRedirects, &o.FailingTimeoutSeconds)
		o.ClusterStateReloadInterval = cmp.Or(o.ClusterStateReloadInterval, fastReload)
	case *redis.FailoverOptions:
		o.ContextTimeoutEnabled, o.DisableIdentity = true, true
		expire(&o.ConnMaxLifetime, &o.ConnMaxLifetimeJitter)
		failOnce(&o.MaxRetries, &o.DialerRetries)
		soon(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
		resp2(&o.Protocol, o.PushNotificationProcessor != nil, nil)
	case *redis.RingOptions:
		o.ContextTimeoutEnabled, o.DisableIdentity = true, true
		expire(&o.ConnMaxLifetime, &o.ConnMaxLifetimeJitter)
		failOnce(&o.MaxRetries, &o.DialerRetries)
		soon(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
		resp2(&o.Protocol, false, nil)
	case *redis.UniversalOptions:
		o.ContextTimeoutEnabled, o.DisableIdentity = true, true
		expire(&o.ConnMaxLifetime, &o.ConnMaxLifetimeJitter)
		failOnce(&o.MaxRetries, &o.DialerRetries)
		soon(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
		resp2(&o.Protocol, o.PushNotificationProcessor != nil || o.ClientSideCache != nil || o.ClientSideCacheConfig != nil, &o.MaintNotificationsConfig)
		findNodes(&o.MaxRedirects, &o.FailingTimeoutSeconds)
	}
	return o
}

func failOnce(retries, dials *int) {
	*retries, *dials = cmp.Or(*retries, -1), cmp.Or(*dials, 1)
}

// expire bounds how long connections last, each at another time.
func expire(lifetime, jitter *time.Duration) {
	if *lifetime == 0 {
		*lifetime, *jitter = connLifetime, cmp.Or(*jitter, connLifetime/5)
	}
}

func soon(timeouts ...*time.Duration) {
	for _, t := range timeouts {
		*t = cmp.Or(*t, fastStep)
	}
}

// resp2 sets the protocol, and switches off the notifications that need RESP3,
// unless the options ask for them or for something else that needs it.
func resp2(protocol *int, pushed bool, maintenance **maintnotifications.Config) {
	if maintenance != nil {
		pushed = pushed || *maintenance != nil && (*maintenance).Mode != maintnotifications.ModeDisabled
		if *maintenance == nil {
			*maintenance = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
		}
	}
	if !pushed {
		*protocol = cmp.Or(*protocol, 2)
	}
}

func findNodes(redirects, failingSeconds *int) {
	*redirects = cmp.Or(*redirects, 2) // MOVED, then ASK
	*failingSeconds = cmp.Or(*failingSeconds, 1)
}
