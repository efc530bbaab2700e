package algorithms

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
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

// Clients made with FailFast get no warnings; those made with go-redis' defaults
// do, and each warning names the option to change.
func TestWarnings(t *testing.T) {
	always := []string{"ContextTimeoutEnabled", "DialerRetries", "DialTimeout", "ReadTimeout", "PoolTimeout"}
	for name, c := range map[string]struct {
		fast, slow Client
		warned     []string
	}{
		"client": {
			redis.NewClient(FailFast(&redis.Options{Addr: "127.0.0.1:1"})),
			redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}),
			append([]string{"MaxRetries"}, always...),
		},
		"cluster": {
			redis.NewClusterClient(FailFast(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})),
			redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}}),
			always,
		},
		"sentinel": {
			redis.NewFailoverClient(FailFast(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}})),
			redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}}),
			append([]string{"MaxRetries"}, always...),
		},
		"ring": {
			redis.NewRing(FailFast(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})),
			redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}}),
			append([]string{"MaxRetries"}, always...),
		},
		"universal client": {
			redis.NewUniversalClient(FailFast(&redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}})),
			redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}}),
			append([]string{"MaxRetries"}, always...),
		},
		"universal cluster": {
			redis.NewUniversalClient(FailFast(&redis.UniversalOptions{Addrs: []string{"127.0.0.1:1", "127.0.0.1:2"}})),
			redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{"127.0.0.1:1", "127.0.0.1:2"}}),
			always,
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer c.fast.(io.Closer).Close()
			defer c.slow.(io.Closer).Close()
			if got := warnings(&Redis{Client: c.fast}); len(got) > 0 {
				t.Errorf("fast: %q", got)
			}
			got := warnings(&Redis{Client: c.slow})
			for _, option := range c.warned {
				if !slices.ContainsFunc(got, func(w string) bool { return strings.HasPrefix(w, option+" is ") }) {
					t.Errorf("slow: no warning of %s in %q", option, got)
				}
			}
			if len(got) < len(c.warned) {
				t.Errorf("slow: %q", got)
			}
		})
	}
	if got := warnings(&Redis{Client: wrapped{}}); len(got) > 0 {
		t.Errorf("of a client that is not known: %q", got)
	}
}

// warnings are those about the options of a client.
func warnings(r *Redis) []string {
	t, _ := r.ready()
	return t.Warnings()
}
