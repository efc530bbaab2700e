package algorithms

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestFailFastLeavesWhatIsSet(t *testing.T) {
	o := FailFast(&redis.Options{Addr: "127.0.0.1:1", ReadTimeout: 2 * time.Second, MaxRetries: 1})
	if o.ReadTimeout != 2*time.Second || o.MaxRetries != 1 || o.DialerRetries != 1 || o.DialTimeout != fastStep || !o.ContextTimeoutEnabled {
		t.Errorf("%+v", o)
	}
}

// What FailFast made has nothing to warn of, what go-redis' defaults make has,
// and a warning names what is to be changed.
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
			redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}, ContextTimeoutEnabled: true,
				MaxRetries: -1, DialerRetries: 1, DialTimeout: fastStep}),
			redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}}),
			append([]string{"MaxRetries"}, always...),
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := (&Redis{Client: c.fast}).warnings(); len(got) > 0 {
				t.Errorf("fast: %q", got)
			}
			got := (&Redis{Client: c.slow}).warnings()
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
	if got := (&Redis{Client: wrapped{}}).warnings(); len(got) > 0 {
		t.Errorf("of a client that is not known: %q", got)
	}
}
