package algorithms

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/internal/redistest"
	"github.com/seed75154129/ratelimit/internal/script"
	"github.com/seed75154129/ratelimit/internal/step"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// Together decides several requests in one flush, where that can be by the joint script.
// It does not remember which keys have taken time.
func (r *Redis) Together(ctx context.Context, requests [][]Check) ([]Decision, error) {
	r = &Redis{Client: r.Client, Namespace: r.Namespace, Budget: r.Budget, now: r.now}
	t, err := r.ready()
	if err != nil {
		return nil, err
	}
	ctx = t.Within(ctx)
	calls, params := make([]*transport.Call, len(requests)), make([][]step.Params, len(requests))
	for i, checks := range requests {
		if params[i], err = prepare(checks, new([4]step.Params)); err != nil {
			return nil, err
		}
		calls[i] = r.takeCall(true, checks, params[i])
	}
	decisions := make([]Decision, len(requests))
	for i, response := range t.SendAll(ctx, calls) {
		if response.Err != nil {
			return nil, redisError(response.Err)
		}
		if decisions[i], err = answers(requests[i], params[i], response.Numbers, true); err != nil {
			return nil, err
		}
	}
	return decisions, nil
}

// Jointly is a Redis that takes each request between two of other keys, in one flush.
type Jointly struct{ *Redis }

// Take implements [Limiter].
func (j Jointly) Take(ctx context.Context, checks ...Check) (Decision, error) {
	if _, err := prepare(checks, new([4]step.Params)); err != nil {
		return Decision{}, err
	}
	others := slices.Clone(checks)
	for i := range others {
		others[i].Key = "beside " + others[i].Key
	}
	all, err := j.Together(ctx, [][]Check{others, checks, others})
	if err != nil {
		return Decision{}, err
	}
	return all[1], nil
}

// scriptName names the scripts that decide requests: one request alone, or several
// jointly, with their number of keys.
func scriptName(cmd redis.Cmder) string {
	switch args := cmd.Args(); {
	case cmd.Name() != "eval" && cmd.Name() != "evalsha":
		return ""
	case args[1] == script.Joint.SHA() || args[1] == script.Joint.Text():
		return fmt.Sprint("joint of ", args[2])
	}
	return "alone"
}

// poison makes the value at a key none of this module's.
var poison = map[string]func(c *redis.Client, ctx context.Context, key string){
	"a long string": func(c *redis.Client, ctx context.Context, key string) {
		c.Set(ctx, key, strings.Repeat("x", 100), time.Hour)
	},
	"a list": func(c *redis.Client, ctx context.Context, key string) { c.Del(ctx, key); c.RPush(ctx, key, "x", "y") },
	"a word": func(c *redis.Client, ctx context.Context, key string) { c.Set(ctx, key, "sixteen, letters", time.Hour) },
}

// batchOf decides so many requests in one flush.
func (r *Redis) batchOf(t *testing.T, n int, charge bool, checks func(i int) []Check) []transport.Response {
	t.Helper()
	tr, err := r.ready()
	if err != nil {
		t.Fatal(err)
	}
	calls := make([]*transport.Call, n)
	for i := range calls {
		of := checks(i)
		ps, err := prepare(of, new([4]step.Params))
		if err != nil {
			t.Fatal(err)
		}
		calls[i] = r.takeCall(charge, of, ps)
	}
	return tr.SendAll(tr.Within(t.Context()), calls)
}

// ofOneAndAll is a request with a limit of its client and one of all.
func ofOneAndAll(i int) []Check {
	return []Check{{Rule: "one", Key: fmt.Sprint("client-", i), Limit: perDay(9)}, {Rule: "all", Limit: perDay(1000)}}
}

// A key with a foreign value fails its own request, which charges
// nothing, and no other one. Only requests with that key are sent by themselves
// afterwards, and only if it costs the others time.
func TestABadKeyFailsOneRequest(t *testing.T) {
	t.Run("redis", func(t *testing.T) { testABadKey(t, redistest.Start(t).Client(t)) })
	t.Run("miniredis", func(t *testing.T) { testABadKey(t, MiniBackend(t).Client.(*redis.Client)) })
}

func testABadKey(t *testing.T, client *redis.Client) {
	log := redistest.Recorder{Name: scriptName}
	sender := redis.NewClient(client.Options())
	defer sender.Close()
	sender.AddHook(&log)
	ofOne := Limit{Rate: 9, Period: 24 * time.Hour}
	checks := func(i int) []Check {
		checks := ofOneAndAll(i)
		checks[0].Limit = ofOne
		return checks
	}
	for what, then := range map[string]string{"a long string": "joint of 30, alone", "a list": "joint of 30, alone", "a word": "joint of 32"} {
		for n := range 4 {
			charge := n%2 == 0
			if ofOne.Algorithm = SlidingWindow; n > 1 { // a set, of which the script reads nothing large
				ofOne.Algorithm, then = InFlight, "joint of 32"
			}
			client.FlushDB(t.Context())
			r := &Redis{Client: sender, Namespace: "test", Budget: roomy}
			bad := checks(5)[0]
			poison[what](client, t.Context(), keyOf("test", bad))
			for _, s := range []*transport.Script{script.Take, script.Joint} {
				if err := client.ScriptLoad(t.Context(), s.Text()).Err(); err != nil {
					t.Fatal(err)
				}
			}
			used := int64(0)
			log.Take()
			for n, want := range []string{"joint of 32", then} {
				for i, resp := range r.batchOf(t, 16, charge, checks) {
					if isForeign(resp.Err) != (i == 5) || i != 5 && resp.Err != nil {
						t.Errorf("%s, %s, charge %v: %d: %v", what, ofOne, charge, i, resp.Err)
					}
				}
				if charge {
					used += 15
				}
				if sent := strings.Join(log.Take(), ", "); sent != want || usedOf(t, r, checks(0)[1]) != used {
					t.Errorf("%s, %s, charge %v: flush %d sent %q, want %q; %d used, want %d", what, ofOne, charge, n, sent, want, usedOf(t, r, checks(0)[1]), used)
				}
				log.Take()
			}
			d, err := r.Take(t.Context(), checks(5)...)
			if res := d.Results; err != nil || d.Allowed || res[0].Err == nil || res[1].Err != nil {
				t.Errorf("%s, %s: %+v, %v", what, ofOne, d, err)
			}
		}
	}
}

// That a key is missing, and not of another type, is asked once for all.
func TestMissingKeysAreAskedForOnce(t *testing.T) {
	client := redistest.Start(t).Client(t)
	r := &Redis{Client: client, Namespace: "test", Budget: roomy}
	r.batchOf(t, 16, true, ofOneAndAll)
	stats := client.Info(t.Context(), "commandstats").Val()
	for _, want := range []string{"cmdstat_mget:calls=1,", "cmdstat_exists:calls=1,"} {
		if !strings.Contains(stats, want) {
			t.Errorf("no %s in\n%s", want, stats)
		}
	}
}

// Where a server does not run requests together, they are decided alone, or fail as
// alone; and where it fails while it runs them, none is sent again.
func TestServersThatRunNoRequestsTogether(t *testing.T) {
	const n = 8
	alone := strings.Repeat(", alone", n)
	for what, c := range map[string]struct {
		options []string // of the server
		acl     string   // of a user that may do anything else
		config  []string
		replica bool
		failed  int
		class   transport.ErrorClass
		sent    string
	}{
		"no MGET":          {acl: "-mget", sent: "joint of 16" + alone},
		"no EXISTS":        {acl: "-exists", sent: "joint of 16" + alone},
		"no such keys":     {acl: "resetkeys ~test:{#}* ~test:{client-[0-3]}*", failed: n / 2, class: transport.ClassRefused, sent: "joint of 16" + alone},
		"no PSETEX":        {acl: "-psetex", failed: n, class: transport.ClassRefused, sent: "joint of 16"},
		"of a cluster":     {options: []string{"--cluster-enabled", "yes"}, sent: "joint of 8" + alone},
		"no memory":        {config: []string{"maxmemory", "1mb"}, failed: n, class: transport.ClassAnswer, sent: "joint of 16"},
		"too few replicas": {config: []string{"min-replicas-to-write", "1"}, failed: n, class: transport.ClassAnswer, sent: "joint of 16"},
		"a replica":        {replica: true, failed: n, class: transport.ClassAnswer, sent: "joint of 16"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t, c.options...)
			admin := srv.Client(t)
			do := func(args ...any) {
				if err := admin.Do(t.Context(), args...).Err(); err != nil {
					t.Fatal(args, err)
				}
			}
			user := []any{"acl", "setuser", "limiter", "on", ">secret", "~*", "+@all"}
			for rule := range strings.FieldsSeq(c.acl) {
				user = append(user, rule)
			}
			do(user...)
			client := redis.NewClient(FailFast(&redis.Options{Addr: srv.Addr, Username: "limiter", Password: "secret",
				DialTimeout: roomy, ReadTimeout: roomy, WriteTimeout: roomy, PoolTimeout: roomy}))
			defer client.Close()
			r := &Redis{Client: client, Namespace: "test", Budget: roomy}
			_ = storeOf(r).Warm(t.Context()) // some cannot decide
			do("flushall")
			checks := ofOneAndAll
			if c.options != nil { // each request in one slot
				do("cluster", "addslotsrange", 0, 16383)
				for !strings.Contains(admin.ClusterInfo(t.Context()).Val(), "cluster_state:ok") {
					time.Sleep(time.Millisecond)
				}
				checks = func(i int) []Check { return ofOneAndAll(i)[:1] }
			}
			if c.config != nil {
				do("config", "set", c.config[0], c.config[1])
			}
			if c.replica {
				do("replicaof", "127.0.0.1", "1")
			}
			log := redistest.Recorder{Name: scriptName}
			client.AddHook(&log)
			failed := 0
			for i, resp := range r.batchOf(t, n, true, checks) {
				if resp.Err == nil {
					continue
				}
				failed++
				if transport.ClassOf(resp.Err) != c.class || transport.NotExecuted(resp.Err) == (what == "no PSETEX") {
					t.Errorf("%d: %s, not executed %v: %v", i, transport.ClassOf(resp.Err), transport.NotExecuted(resp.Err), resp.Err)
				}
			}
			if sent := strings.Join(log.Take(), ", "); failed != c.failed || sent != c.sent {
				t.Errorf("%d failed, want %d; sent %q, want %q", failed, c.failed, sent, c.sent)
			}
			if c.failed < n { // for a minute, alone at once
				r.batchOf(t, n, true, checks)
				if sent := strings.Join(log.Take(), ", "); sent != alone[2:] {
					t.Errorf("then sent %q", sent)
				}
			} else if keys := admin.DBSize(t.Context()).Val(); keys > 0 {
				t.Errorf("%d keys were written", keys)
			}
		})
	}
}

// Arguments that calls share are those that each would make by itself, whatever was asked
// before, and nobody writes them.
func TestCallsOfOneShapeShareTheirArguments(t *testing.T) {
	r := &Redis{Namespace: "shapes"}
	limits := []Limit{PerMinute(5), PerMinute(6), {Rate: 5, Period: time.Minute, Algorithm: FixedWindow}, {Rate: 5, Period: time.Minute, Burst: 3}}
	for i := range 2000 {
		checks := make([]Check, 1+i%6)
		for j := range checks {
			checks[j] = Check{Rule: fmt.Sprint("r", j), Limit: limits[rand.IntN(len(limits))], Cost: rand.Int64N(3), Shadow: rand.IntN(2) == 0}
		}
		ps, err := prepare(checks, new([4]step.Params))
		if err != nil {
			t.Fatal(err)
		}
		charge := rand.IntN(2) == 0
		want := newArguments(charge, checks, ps)
		first, second := r.takeCall(charge, checks, ps), r.takeCall(charge, checks, ps)
		if !slices.Equal(first.Args, want) || !slices.Equal(second.Args, want) {
			t.Fatalf("%+v, charged %t: arguments %v and %v, want %v", checks, charge, first.Args, second.Args, want)
		}
		if cap(first.Args) > len(first.Args) {
			t.Fatal("a call that appends an argument would write another's")
		}
		if shared := &first.Args[0] == &second.Args[0]; shared != (len(checks) <= 4) {
			t.Errorf("the arguments for %d checks are shared: %t", len(checks), shared)
		}
	}
}
