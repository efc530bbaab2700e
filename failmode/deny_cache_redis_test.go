package failmode_test

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/internal/redistest"
)

func guardOver(t *testing.T, r *algorithms.Redis) *failmode.Guard {
	t.Helper()
	r.Namespace, r.Budget = "test", 10*time.Second
	g := &failmode.Guard{Limiter: r, Instances: 1, Logger: slog.New(slog.DiscardHandler)}
	t.Cleanup(func() { _ = g.Close() })
	if err := g.Warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	return g
}

// A thousand connections on one key, counted by the server: it runs the script
// for what is admitted, for those that were under way when it first denied, and
// once a second. A client of its own is served meanwhile.
func TestFloodOnAServer(t *testing.T) {
	const callers, each, rate = 1000, 100, 200
	server := redistest.Start(t)
	g := guardOver(t, &algorithms.Redis{Client: server.Client(t)})
	flooded := algorithms.Check{Rule: "per-ip", Key: "192.0.2.1", Limit: algorithms.PerHour(rate)}
	before, begun := server.Executed(t), time.Now()
	var admitted, undecided atomic.Int64
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range each {
				d, err := g.Take(t.Context(), flooded)
				if err != nil {
					t.Error(err)
					return
				}
				if d.Allowed {
					admitted.Add(1)
				}
				if s := d.Results[0].Source; s != algorithms.SourceRedis && s != algorithms.SourceDenyCache {
					undecided.Add(1)
				}
			}
		})
	}
	const logins = 50
	for i := range logins {
		login := algorithms.Check{Rule: "login", Key: fmt.Sprint(i), Limit: algorithms.PerMinute(5)}
		if d, err := g.Take(t.Context(), login); err != nil || !d.Allowed {
			t.Errorf("a login: %+v, %v", d, err)
		}
	}
	all.Wait()
	commands, seconds := server.Executed(t)-before-logins, int(time.Since(begun)/time.Second)
	t.Logf("%d commands for %d requests, %d admitted, in %d s", commands, callers*each, admitted.Load(), seconds)
	if undecided.Load() > 0 {
		t.Fatalf("%d not decided by Redis", undecided.Load())
	}
	if admitted.Load() != rate {
		t.Errorf("%d admitted", admitted.Load())
	}
	if most := rate + 1 + callers + seconds; commands > most {
		t.Errorf("%d commands, want at most %d", commands, most)
	}
}

// On a cluster each check is charged alone and given back where another denies.
// Of a key that is known to be over nothing is charged, so that a flood takes
// nothing from the counts that it shares with others.
func TestFloodOnAClusterDrainsNobody(t *testing.T) {
	cluster := redistest.StartCluster(t)
	g := guardOver(t, &algorithms.Redis{Client: cluster.Client(t)})
	full := algorithms.Check{Rule: "per-ip", Key: "192.0.2.1", Limit: algorithms.PerHour(5)}
	shared := algorithms.Check{Rule: "all", Key: "everybody", Limit: algorithms.Limit{Rate: 1, Period: time.Hour, Burst: 100, Algorithm: algorithms.TokenBucket}}
	for range 2000 {
		d, err := g.Take(t.Context(), full, shared)
		if err != nil {
			t.Fatal(err)
		}
		if d.Allowed != (d.Results[0].Charged > 0) || d.Results[0].Source != algorithms.SourceRedis && d.Results[0].Source != algorithms.SourceDenyCache {
			t.Fatalf("%+v", d)
		}
	}
	d, err := g.Peek(t.Context(), shared)
	if err != nil || d.Results[0].Remaining != 95 {
		t.Errorf("%+v, %v; want 95 left", d, err)
	}
}

// A foreign value at one key concerns its own check only, which is counted here in
// every mode. Redis counts the others, also those that fail open.
func TestAForeignValueTakesNoOtherRuleAlong(t *testing.T) {
	client := redistest.Start(t).Client(t)
	for _, mode := range []failmode.Mode{failmode.Local, failmode.Open, failmode.Closed} {
		t.Run(mode.String(), func(t *testing.T) {
			r := &algorithms.Redis{Client: client}
			g := guardOver(t, r)
			foreign := algorithms.Check{Rule: "foreign", Key: mode.String(), Limit: algorithms.PerHour(20), Fail: mode}
			other := algorithms.Check{Rule: "other", Key: mode.String(), Limit: algorithms.PerHour(10), Fail: failmode.Open}
			if err := client.Set(t.Context(), "test:{"+mode.String()+"}:foreign:sw1:1h", "hello", 0).Err(); err != nil {
				t.Fatal(err)
			}
			admitted := 0
			for range 30 {
				d, err := g.Take(t.Context(), foreign, other)
				if err != nil {
					t.Fatal(err)
				}
				if d.Allowed {
					admitted++
				}
				if s := d.Results[0].Source; s != algorithms.SourceFallback && s != algorithms.SourceNone {
					t.Errorf("%+v", d.Results[0])
				}
				if s := d.Results[1].Source; s != algorithms.SourceRedis && s != algorithms.SourceDenyCache {
					t.Errorf("%+v", d.Results[1])
				}
			}
			if d, err := r.Peek(t.Context(), other); admitted != 10 || err != nil || d.Results[0].Remaining != 0 {
				t.Errorf("%d admitted, want the other rule's 10: %+v, %v", admitted, d, err)
			}
			for range 30 {
				if d, err := g.Take(t.Context(), foreign); err == nil && d.Allowed {
					admitted++
				}
			}
			if admitted != 20 || openShards(g) > 0 {
				t.Errorf("%d admitted, want the rule's own 20; circuits open: %d", admitted, openShards(g))
			}
		})
	}
}
