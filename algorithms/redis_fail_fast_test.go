package algorithms

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/seed75154129/ratelimit/internal/redistest"
)

func TestFailFastLeavesWhatIsSet(t *testing.T) {
	o := FailFast(&redis.Options{Addr: "127.0.0.1:1", ReadTimeout: 2 * time.Second, MaxRetries: 1, Protocol: 3})
	if o.ReadTimeout != 2*time.Second || o.MaxRetries != 1 || o.Protocol != 3 || o.DialerRetries != 1 || o.DialTimeout != fastStep || !o.ContextTimeoutEnabled {
		t.Errorf("%+v", o)
	}
	notified := &maintnotifications.Config{Mode: maintnotifications.ModeEnabled}
	if o := FailFast(&redis.Options{MaintNotificationsConfig: notified}); o.Protocol != 0 || o.MaintNotificationsConfig != notified {
		t.Errorf("maintenance notifications need RESP3: %+v", o)
	}
	if o := FailFast(&redis.UniversalOptions{ClientSideCacheConfig: new(redis.ClientSideCacheConfig)}); o.Protocol != 0 {
		t.Errorf("a client-side cache needs RESP3: %+v", o)
	}
}

// Every kind of client leaves a server that its address means no longer, also if that server
// is well, unless the options keep connections.
func TestFailFastReplacesConnections(t *testing.T) {
	for kind, got := range map[string][2]time.Duration{
		"client":    {FailFast(&redis.Options{}).ConnMaxLifetime, FailFast(&redis.Options{ConnMaxLifetime: -1}).ConnMaxLifetime},
		"cluster":   {FailFast(&redis.ClusterOptions{}).ConnMaxLifetime, FailFast(&redis.ClusterOptions{ConnMaxLifetime: -1}).ConnMaxLifetime},
		"sentinel":  {FailFast(&redis.FailoverOptions{}).ConnMaxLifetime, FailFast(&redis.FailoverOptions{ConnMaxLifetime: -1}).ConnMaxLifetime},
		"ring":      {FailFast(&redis.RingOptions{}).ConnMaxLifetime, FailFast(&redis.RingOptions{ConnMaxLifetime: -1}).ConnMaxLifetime},
		"universal": {FailFast(&redis.UniversalOptions{}).ConnMaxLifetime, FailFast(&redis.UniversalOptions{ConnMaxLifetime: -1}).ConnMaxLifetime},
	} {
		if got != [2]time.Duration{connLifetime, -1} {
			t.Errorf("%s: %s", kind, got)
		}
	}
	if o := FailFast(&redis.Options{}); o.ConnMaxLifetimeJitter == 0 {
		t.Error("all connections end at once")
	}
}

// A server that is farther away than a timeout of the client never decides, whatever the
// Budget is. FailFast suits any.
func TestTimeoutsBelowTheBudget(t *testing.T) {
	const here, budget, hasty = "127.0.0.1:1", 360 * time.Millisecond, 100 * time.Millisecond
	all := []string{"DialTimeout", "ReadTimeout", "WriteTimeout", "PoolTimeout"}
	for name, c := range map[string]struct {
		client Client
		budget time.Duration
		warned []string
	}{
		"client":             {redis.NewClient(FailFast(&redis.Options{Addr: here, DialTimeout: hasty, ReadTimeout: hasty, WriteTimeout: hasty, PoolTimeout: hasty})), budget, all},
		"cluster":            {redis.NewClusterClient(FailFast(&redis.ClusterOptions{Addrs: []string{here}, DialTimeout: hasty, ReadTimeout: hasty, WriteTimeout: hasty, PoolTimeout: hasty})), budget, all},
		"ring":               {redis.NewRing(FailFast(&redis.RingOptions{Addrs: map[string]string{"a": here}, DialTimeout: hasty, ReadTimeout: hasty, WriteTimeout: hasty, PoolTimeout: hasty})), budget, all},
		"sentinel":           {redis.NewFailoverClient(FailFast(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{here}, DialTimeout: hasty, ReadTimeout: hasty, WriteTimeout: hasty, PoolTimeout: hasty})), budget, all},
		"ReadTimeout alone":  {redis.NewClient(FailFast(&redis.Options{Addr: here, ReadTimeout: hasty})), budget, []string{"ReadTimeout"}},
		"the default budget": {redis.NewClient(FailFast(&redis.Options{Addr: here, WriteTimeout: 49 * time.Millisecond})), 0, []string{"WriteTimeout"}},
		"as long as it":      {redis.NewClient(FailFast(&redis.Options{Addr: here, ReadTimeout: budget})), budget, nil},
		"FailFast":           {redis.NewClient(FailFast(&redis.Options{Addr: here})), time.Minute, nil},
		"no timeouts":        {redis.NewClient(FailFast(&redis.Options{Addr: here, ReadTimeout: -1, WriteTimeout: -2})), time.Minute, nil},
	} {
		got := warnings(&Redis{Client: c.client, Namespace: "n", Budget: c.budget})
		if len(got) != len(c.warned) {
			t.Errorf("%s: %q, want %q", name, got, c.warned)
			continue
		}
		for i, option := range c.warned {
			want := fmt.Sprintf("%s is %s, below Budget %s: a Redis that is farther away never decides; 1s is enough", option, hasty, c.budget)
			if c.budget == 0 {
				want = option + " is 49ms, below Budget 50ms: a Redis that is farther away never decides; 1s is enough"
			}
			if got[i] != want {
				t.Errorf("%s: %q, want %q", name, got[i], want)
			}
		}
	}
}

// Redis decides, far away too, with the client and the Budget that the pages advise.
func TestADistantRedisDecides(t *testing.T) {
	const roundTrip = 120 * time.Millisecond
	proxy := redistest.StartProxy(t, redistest.Start(t).Addr)
	proxy.SetLatency(roundTrip, 0)
	client := redis.NewClient(FailFast(&redis.Options{Addr: proxy.Addr}))
	defer client.Close()
	r := &Redis{Client: client, Namespace: "far", Budget: 3 * roundTrip}
	if err := storeOf(r).Warm(t.Context()); err != nil {
		t.Error(err)
	}
	for i := range 4 {
		d, err := r.Take(t.Context(), Check{Rule: "r", Limit: perDay(3)})
		if err != nil || d.Allowed != (i < 3) {
			t.Errorf("request %d: %+v, %v", i, d, err)
		}
	}
}

// Clients made with FailFast get no warnings; those made with go-redis' defaults
// do, and each warning names the option to change.
func TestWarnings(t *testing.T) {
	const here = "127.0.0.1:1"
	always := []string{"ContextTimeoutEnabled", "DialerRetries", "DialTimeout", "ReadTimeout", "PoolTimeout"}
	for name, c := range map[string]struct {
		make   func(failFast bool) Client
		warned []string
	}{
		"client":            {make: optionally(redis.NewClient, redis.Options{Addr: here}), warned: []string{"MaxRetries"}},
		"cluster":           {make: optionally(redis.NewClusterClient, redis.ClusterOptions{Addrs: []string{here}})},
		"sentinel":          {make: optionally(redis.NewFailoverClient, redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{here}}), warned: []string{"MaxRetries"}},
		"ring":              {make: optionally(redis.NewRing, redis.RingOptions{Addrs: map[string]string{"a": here}}), warned: []string{"MaxRetries"}},
		"universal client":  {make: optionally(redis.NewUniversalClient, redis.UniversalOptions{Addrs: []string{here}}), warned: []string{"MaxRetries"}},
		"universal cluster": {make: optionally(redis.NewUniversalClient, redis.UniversalOptions{Addrs: []string{here, "127.0.0.1:2"}})},
	} {
		t.Run(name, func(t *testing.T) {
			fast, slow := c.make(true), c.make(false)
			defer fast.(io.Closer).Close()
			defer slow.(io.Closer).Close()
			if got := warnings(&Redis{Client: fast}); len(got) > 0 {
				t.Errorf("fast: %q", got)
			}
			got := warnings(&Redis{Client: slow})
			for _, option := range append(c.warned, always...) {
				if !slices.ContainsFunc(got, func(w string) bool { return strings.HasPrefix(w, option+" is ") }) {
					t.Errorf("slow: no warning of %s in %q", option, got)
				}
			}
		})
	}
	if got := warnings(&Redis{Client: wrapped{}}); len(got) > 0 {
		t.Errorf("of a client that is not known: %q", got)
	}
}

// optionally makes a client with options as they are, or with FailFast.
func optionally[O redis.Options | redis.ClusterOptions | redis.FailoverOptions | redis.RingOptions | redis.UniversalOptions, C Client](client func(*O) C, options O) func(failFast bool) Client {
	return func(failFast bool) Client {
		o := options
		if failFast {
			return client(FailFast(&o))
		}
		return client(&o)
	}
}

// warnings are those about the options of a client.
func warnings(r *Redis) []string {
	t, _ := r.ready()
	return t.Warnings()
}
