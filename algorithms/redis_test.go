package algorithms

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/internal/redistest"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// roomy is a budget that no loaded test machine uses up.
const roomy = 10 * time.Second

// three are the layers of a usual request.
func three(ip, user string) []Check {
	return []Check{
		{Rule: "per-ip", Key: ip, Limit: PerMinute(200)},
		{Rule: "per-user", Key: user, Limit: Limit{Rate: 100, Period: time.Minute, Algorithm: TokenBucket}},
		{Rule: "login", Key: ip, Limit: Limit{Rate: 5, Period: time.Minute, Algorithm: FixedWindow}},
	}
}

func TestRedisDecidesThreeChecksInOneCommand(t *testing.T) {
	client := redistest.Start(t).Client(t)
	var rec redistest.Recorder
	client.AddHook(&rec)
	r := &Redis{Client: client, Namespace: "test", Budget: roomy}

	for i, want := range [][]string{{"evalsha", "eval"}, {"evalsha"}, {"evalsha"}} {
		if d, err := r.Take(t.Context(), three("192.0.2.1", "alice")...); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		if got := rec.Take(); !slices.Equal(got, want) {
			t.Errorf("request %d sent %q, want %q", i, got, want)
		}
	}
	if err := client.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	rec.Take()
	d, err := r.Take(t.Context(), three("192.0.2.1", "alice")...)
	if err != nil || d.Results[2].Remaining != 1 {
		t.Errorf("after SCRIPT FLUSH: %+v, %v; want the fourth of five logins", d, err)
	}
	if got := rec.Take(); !slices.Equal(got, []string{"evalsha", "eval"}) {
		t.Errorf("after SCRIPT FLUSH: sent %q", got)
	}
}

// go-redis sends a command that timed out up to three times more, and Redis
// runs each.
func TestRedisNeverExecutesADecisionTwice(t *testing.T) {
	srv := redistest.Start(t)
	for name, heeds := range map[string]bool{"client with default options": false, "client that heeds deadlines": true} {
		t.Run(name, func(t *testing.T) {
			client := redis.NewClient(&redis.Options{Addr: srv.Addr, ReadTimeout: 50 * time.Millisecond, ContextTimeoutEnabled: heeds})
			defer client.Close()
			r := &Redis{Client: client, Namespace: name[:6], Budget: roomy}
			check := Check{Rule: "r", Key: name, Limit: perDay(100)}
			if _, err := r.Take(t.Context(), check); err != nil {
				t.Fatal(err)
			}
			srv.Pause(t)
			_, err := r.Take(t.Context(), check)
			srv.Resume(t)
			if err == nil {
				t.Fatal("no error from a Redis that stands still")
			}
			d, err := r.Peek(t.Context(), check)
			if err != nil {
				t.Fatal(err)
			}
			if used := 100 - d.Results[0].Remaining; used != 2 {
				t.Errorf("two decisions used %d units", used)
			}
		})
	}
}

func TestRedisValidate(t *testing.T) {
	var nilClient *redis.Client
	for want, r := range map[string]*Redis{
		"client: required, got nil":                                                                                  {Namespace: "n"},
		"client: required, got nil\nnamespace: required":                                                             {Client: nilClient},
		"budget: must be from 1 ms to a minute, or 0 for 50 ms; got -1ns":                                            {Client: struct{ Client }{}, Namespace: "n", Budget: -1},
		"budget: must be from 1 ms to a minute, or 0 for 50 ms; got 50ns; write the unit, as in 50*time.Millisecond": {Client: struct{ Client }{}, Namespace: "n", Budget: 50},
		"budget: must be from 1 ms to a minute, or 0 for 50 ms; got 999.999µs":                                       {Client: struct{ Client }{}, Namespace: "n", Budget: time.Millisecond - 1},
		"budget: must be from 1 ms to a minute, or 0 for 50 ms; got 1m0.000000001s":                                  {Client: struct{ Client }{}, Namespace: "n", Budget: time.Minute + 1},
		"a sharded client needs the method Pipeline":                                                                 {Client: struct{ Client }{}, Namespace: "n", Sharded: true},
		"client: a pipeline only queues commands; pass the client":                                                   {Client: redis.NewClient(&redis.Options{}).Pipeline(), Namespace: "n"},
		`namespace: "a:b"; use printable ASCII`:                                                                      {Client: struct{ Client }{}, Namespace: "a:b"},
		"namespace: 65 bytes; at most 64":                                                                            {Client: struct{ Client }{}, Namespace: strings.Repeat("x", 65)},
		"algorithms: redis: client: required, got nil\nnamespace":                                                    nil,
	} {
		if r == nil {
			_, err := new(Redis).Take(t.Context(), Check{Rule: "r", Limit: perDay(1)})
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Take: %v, want %q", err, want)
			}
			continue
		}
		if err := r.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", r, err, want)
		}
	}
}

func TestRedisProbe(t *testing.T) {
	srv := redistest.Start(t)
	r := &Redis{Client: srv.Client(t), Namespace: "test"}
	if n := storeOf(r).Shard("k"); n != 0 || storeOf(r).Names(n)[0] != srv.Addr {
		t.Errorf("shard %d, %q", n, storeOf(r).Names(n))
	}
	if err := storeOf(r).Probe(t.Context(), 0); err != nil {
		t.Error(err)
	}
	if err := storeOf(r).Probe(t.Context(), 1); err == nil {
		t.Error("no error for a shard that is none")
	}
	srv.Stop(t)
	if err := storeOf(r).Probe(t.Context(), 0); err == nil {
		t.Error("no error from a Redis that is away")
	}
}

// wrapped is a client whose kind cannot be told from its type.
type wrapped struct{ *redis.ClusterClient }

func TestRedisCluster(t *testing.T) {
	cluster := redistest.StartCluster(t, "--cluster-require-full-coverage", "no")
	for _, node := range cluster.Nodes { // no replica is to take over
		if err := node.Client(t).ConfigSet(t.Context(), "cluster-node-timeout", "60000").Err(); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("a server that hangs", func(t *testing.T) { testAServerThatHangs(t, cluster) })
	t.Run("settling where a shard is away", func(t *testing.T) { testSettlingWhereAShardIsAway(t, cluster) })

	var rec redistest.Recorder
	client := cluster.Client(t)
	client.AddHook(&rec)

	t.Run("sends one command for each key and nothing more", func(t *testing.T) {
		r := &Redis{Client: wrapped{client}, Namespace: "one", Sharded: true, Budget: roomy}
		for range 2 {
			rec.Take()
			if _, err := r.Take(t.Context(), three("192.0.2.1", "alice")...); err != nil {
				t.Fatal(err)
			}
		}
		if got := rec.Take(); !slices.Equal(got, []string{"evalsha", "evalsha"}) {
			t.Errorf("sent %q", got)
		}
	})

	t.Run("says what to set for a wrapped client", func(t *testing.T) {
		r := &Redis{Client: wrapped{client}, Namespace: "wrapped", Budget: roomy}
		_, err := r.Take(t.Context(), three("192.0.2.1", "alice")...)
		if err == nil || !strings.HasSuffix(err.Error(), "the client spreads keys over servers: set Redis.Sharded") {
			t.Errorf("got %v", err)
		}
	})

	t.Run("reports what a dead shard could not decide", func(t *testing.T) {
		r := &Redis{Client: client, Namespace: "part", Budget: roomy}
		var checks []Check
		for i := range 12 {
			checks = append(checks, Check{Rule: "r", Key: fmt.Sprint(i), Limit: perDay(10)})
		}
		dead := cluster.Masters[0]
		dead.Pause(t)
		defer dead.Resume(t)
		fast := client.Options()
		opts := *fast
		opts.ReadTimeout, opts.MaxRedirects = 100*time.Millisecond, 1
		impatient := redis.NewClusterClient(&opts)
		defer impatient.Close()
		r.Client = impatient
		d, err := r.Take(t.Context(), checks...)
		if err != nil {
			t.Fatal(err)
		}
		answered := 0
		for _, res := range d.Results {
			if res.Err == nil && res.HasRoom && res.Charged == 1 {
				answered++
			} else if res.Err == nil || res.HasRoom || res.Charged != 0 {
				t.Errorf("%+v", res)
			}
		}
		if answered == 0 || answered == len(checks) || d.Allowed {
			t.Errorf("%d of %d checks answered, allowed %v", answered, len(checks), d.Allowed)
		}
	})

	t.Run("warns of each master", func(t *testing.T) {
		r := &Redis{Client: client, Namespace: "warn", Budget: roomy}
		for _, master := range cluster.Masters[:2] {
			master.Client(t).ConfigSet(t.Context(), "maxmemory-policy", "volatile-ttl")
			defer master.Client(t).ConfigSet(t.Context(), "maxmemory-policy", "noeviction")
		}
		if warned, err := storeOf(r).ServerWarnings(t.Context()); err != nil || len(warned) != 2 {
			t.Errorf("%q, %v", warned, err)
		}
		if n, err := storeOf(r).Beat(t.Context(), "a", time.Second); err != nil || n != 1 {
			t.Errorf("%d instances, %v", n, err)
		}
	})

	t.Run("finds a node that lives", func(t *testing.T) {
		r := &Redis{Client: client, Namespace: "alive", Budget: roomy}
		slot := client.ClusterKeySlot(t.Context(), keyOf("alive", Check{Rule: probeRule, Limit: Limit{Rate: probeRate, Period: time.Second, Algorithm: FixedWindow}})).Val()
		dead := cluster.Owner(t, int(slot)) // the first key that a probe asks for is here
		dead.Pause(t)
		defer dead.Resume(t)
		opts := *client.Options()
		opts.ReadTimeout, opts.MaxRedirects = 100*time.Millisecond, 1
		impatient := redis.NewClusterClient(&opts)
		defer impatient.Close()
		r.Client = impatient
		if err := storeOf(r).Probe(t.Context(), 0); err != nil {
			t.Error(err)
		}
		if storeOf(r).Shard("k") == 0 {
			t.Error("no node is known")
		}
	})

	t.Run("knows the node of each check, and probes it", func(t *testing.T) {
		r := &Redis{Client: client, Namespace: "probe", Budget: roomy}
		check := func(i int) Check { return Check{Rule: "r", Key: fmt.Sprint(i), Limit: perDay(1)} }
		if n := storeOf(r).Shard(check(0).Key); n != 0 {
			t.Errorf("shard %d before anything was asked", n)
		}
		if err := storeOf(r).Probe(t.Context(), 0); err != nil {
			t.Error(err)
		}
		checks := []Check{{Rule: "r", Limit: perDay(1)}, {Rule: "r", Key: strings.Repeat("long", 100), Limit: perDay(1)}}
		for i := range 100 {
			checks = append(checks, check(i))
		}
		for _, c := range checks {
			slot, err := client.ClusterKeySlot(t.Context(), keyOf("probe", c)).Result()
			if err != nil {
				t.Fatal(err)
			}
			if n, want := storeOf(r).Shard(c.Key), cluster.Owner(t, int(slot)).Addr; n < 1 || n > 3 || storeOf(r).Names(n)[0] != want {
				t.Errorf("%.20q: shard %d is %q, want %s", c.Key, n, storeOf(r).Names(n), want)
			}
		}
		before := make([]int, 3)
		for i := range before {
			before[i] = cluster.Masters[i].Executed(t)
			if err := storeOf(r).Probe(t.Context(), i+1); err != nil {
				t.Errorf("node %d: %v", i+1, err)
			}
		}
		for i, master := range cluster.Masters {
			if n := master.Executed(t) - before[i]; n != 3 {
				t.Errorf("%s executed %d scripts, want the three of its own probe", master.Addr, n)
			}
		}
		if err := storeOf(r).Probe(t.Context(), 4); !errors.Is(err, transport.ErrGone) {
			t.Errorf("a node without slots: %v", err)
		}
	})
}

func TestRedisRing(t *testing.T) {
	a, b := redistest.Start(t), redistest.Start(t)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": a.Addr, "b": b.Addr}})
	defer ring.Close()
	r := &Redis{Client: ring, Namespace: "test", Budget: roomy}
	admitted := 0
	for i := range 20 {
		// The user's count must not depend on which address it comes from.
		d, err := r.Take(t.Context(),
			Check{Rule: "ip", Key: fmt.Sprint(i), Limit: perDay(1)},
			Check{Rule: "user", Key: "alice", Limit: Limit{Rate: 5, Period: 1000 * time.Hour, Algorithm: FixedWindow}})
		if err != nil {
			t.Fatal(err)
		}
		if d.Allowed {
			admitted++
		}
	}
	if admitted != 5 {
		t.Errorf("admitted %d, want 5", admitted)
	}

	// Each shard fails on its own.
	var met []string
	for i := range 20 {
		if name := storeOf(r).Names(storeOf(r).Shard(fmt.Sprint(i)))[0]; !slices.Contains(met, name) {
			met = append(met, name)
		}
	}
	if len(met) != 2 || !slices.Contains(met, a.Addr) || !slices.Contains(met, b.Addr) {
		t.Errorf("shards %q, want %s and %s", met, a.Addr, b.Addr)
	}
	dead := slices.IndexFunc(storeOf(r).Names(1, 2), func(name string) bool { return name == b.Addr }) + 1
	b.Stop(t)
	if err := storeOf(r).Probe(t.Context(), dead); err == nil {
		t.Error("no error from a shard that is away")
	}
	if err := storeOf(r).Probe(t.Context(), 3-dead); err != nil {
		t.Errorf("the other shard: %v", err)
	}
}

// Each layer says its name once, and mistakes of the caller are not Redis'.
func TestRedisErrorsNameEachLayerOnce(t *testing.T) {
	srv := redistest.Start(t)
	client := srv.Client(t)
	check := Check{Rule: "r", Key: "k", Limit: perDay(1)}
	client.Set(t.Context(), keyOf("n", check), "something else", 0)
	for want, err := range map[string]error{
		"algorithms: redis: dial tcp 127.0.0.1:1: ": take(t, &Redis{Client: redis.NewClient(FailFast(&redis.Options{Addr: "127.0.0.1:1"})), Namespace: "n"}, check),
		"algorithms: redis: client: required":       take(t, &Redis{Namespace: "n"}, check),
		"algorithms: redis: ":                       take(t, &Redis{Client: client, Namespace: "n", Budget: roomy}, check),
		`algorithms: invalid check: rule "r": `:     take(t, &Redis{Client: client, Namespace: "n", Budget: roomy}, Check{Rule: "r"}),
	} {
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Count(err.Error(), "algorithms:") != 1 || strings.Count(err.Error(), "redis:") > 1 {
			t.Errorf("%v; want %q, once", err, want)
		}
	}
}

func take(t *testing.T, r *Redis, c Check) error {
	t.Helper()
	_, err := r.Take(t.Context(), c)
	return err
}
