package algorithms

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"pgregory.net/rapid"

	"github.com/seed75154129/ratelimit/internal/memory"
	"github.com/seed75154129/ratelimit/internal/redistest"
	"github.com/seed75154129/ratelimit/internal/script"
)

// A backend is a store under test, with a clock that the test sets.
type backend struct {
	limiter Limiter
	setTime func(us int64)
	flush   func()
	del     func(key string)
	ttl     func(key string) time.Duration // whole milliseconds; negative if there is none
	// steady says that the clock must not step back and limits not change: what
	// a cluster gives back it has written, with a window rolled and a fraction
	// cut, where a single server writes nothing. Both err towards denying then,
	// but not equally.
	steady bool
}

// TestConformance takes random schedules on each store and on the steps in Go,
// and wants every field of every result equal. CONFORMANCE_ROUNDS multiplies
// the schedules; CONFORMANCE_SUMMARY names a file for what was compared.
func TestConformance(t *testing.T) {
	rounds := 1
	if s := os.Getenv("CONFORMANCE_ROUNDS"); s != "" {
		if _, err := fmt.Sscan(s, &rounds); err != nil {
			t.Fatalf("CONFORMANCE_ROUNDS=%q is not a number", s)
		}
	}
	backends := []struct {
		name   string
		start  func(*testing.T) backend
		rounds int // of 100 schedules
	}{
		{"miniredis", miniBackend, 2},
		{"redis", realBackend, 10},
		{"cluster", clusterBackend, 4},
		{"miniredis, jointly", inJoint(miniBackend), 1},
		{"redis, jointly", inJoint(realBackend), 5},
	}
	var summary []string
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			var run conformance
			run.backend = b.start(t)
			for range b.rounds * rounds {
				rapid.Check(t, run.schedule)
			}
			summary = append(summary, fmt.Sprintf("%d schedules, %d steps, %d results, %d of them banned, on %s",
				run.schedules, run.steps, run.results, run.banned, b.name))
		})
	}
	line := "conformance: no difference in " + strings.Join(summary, "; ")
	t.Log(line)
	if path := os.Getenv("CONFORMANCE_SUMMARY"); path != "" && !t.Failed() {
		if err := os.WriteFile(path, []byte(line+"\n"), 0o600); err != nil {
			t.Error(err)
		}
	}
}

// lastTime is a year before 2^52 µs, in 2112. Beyond that, numbers in Lua lose fractions.
const lastTime = 1<<52 - year

type conformance struct {
	backend
	schedules, steps, results, banned int
	sameKeys                          bool // of all rules, in the schedule of now
}

// schedule is one random history of several rules on a few keys.
func (c *conformance) schedule(t *rapid.T) {
	ctx := context.Background()
	c.flush()
	c.schedules++
	model := new(Memory)
	now := someTime + rapid.Int64Range(0, 86_400_000_000).Draw(t, "start")
	limits := make([]Limit, rapid.IntRange(1, 5).Draw(t, "rules")) // more than the script has room for at first
	c.sameKeys = rapid.Bool().Draw(t, "same keys")
	bans := make([]Ban, len(limits))
	banning := rapid.Bool().Draw(t, "banning") // else no check has a ban
	for i := range limits {
		limits[i] = drawLimit(t, fmt.Sprint("rule ", i))
		if rapid.IntRange(0, 4).Draw(t, "in flight") == 0 { // in a lease that never ends: a Memory has none
			limits[i] = Limit{Rate: rapid.Int64Range(1, 5).Draw(t, "at once"), Period: fiftyYears / 3, Algorithm: InFlight}
			continue
		}
		if rapid.IntRange(0, 4).Draw(t, "by calendar") == 0 {
			limits[i] = Limit{Rate: rapid.OneOf(rapid.Int64Range(1, 5), atBoundary).Draw(t, "in a window"), Calendar: rapid.SampledFrom([]string{
				"day@UTC", "day@America/Santiago", "day@Asia/Kathmandu", "week@Europe/Berlin", "month@UTC", "month:31@Pacific/Apia", "quarter@America/Havana", "year@UTC",
			}).Draw(t, "calendar")}
			continue
		}
		if banning && rapid.Bool().Draw(t, "bans") {
			bans[i] = drawBan(t, limits[i])
		}
	}
	// In mixed schedules, checks with and without the Ban take turns on a key, and so do the
	// scripts.
	mixed := rapid.IntRange(0, 3).Draw(t, "mixed") == 0
	holds := slices.ContainsFunc(limits, func(l Limit) bool { return l.held() })
	var charged []Result
	for range rapid.IntRange(1, 40).Draw(t, "steps") {
		c.steps++
		c.setTime(now)
		if !c.steady && rapid.IntRange(0, 9).Draw(t, "change") == 0 {
			i := rapid.IntRange(0, len(limits)-1).Draw(t, "rule to change")
			limits[i] = changed(t, limits[i])
			if bans[i] != (Ban{}) {
				bans[i] = drawBan(t, limits[i])
			}
		}
		checks := make([]Check, len(limits))
		for i, l := range limits {
			checks[i] = Check{
				Rule:   fmt.Sprint("rule-", i),
				Key:    c.keys(i)[rapid.IntRange(0, 1).Draw(t, "key")],
				Limit:  l,
				Cost:   rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(0, l.Quota()+1), atBoundary).Draw(t, "cost"),
				Shadow: rapid.IntRange(0, 7).Draw(t, "shadow") == 0,
				spared: rapid.IntRange(0, 7).Draw(t, "spared") == 0,
			}
			if l.held() {
				checks[i].Cost, checks[i].hold = min(checks[i].Cost, 1), newID()
			}
			if l.row().Queue {
				checks[i].MaxDelay = drawMaxDelay(t, l)
			}
			if !mixed || rapid.Bool().Draw(t, "reads bans") {
				checks[i].Ban = bans[i]
			}
		}
		var got Decision
		var err error
		switch op := rapid.IntRange(0, 9).Draw(t, "op"); {
		case op == 0 && len(charged) > 0:
			cost := rapid.OneOf(rapid.Just[int64](0), rapid.Int64Range(0, 5), atBoundary, debts).Draw(t, "new cost")
			if holds {
				cost = 0
			}
			settled, err := c.limiter.Settle(ctx, chargesOf(cost, charged...)...)
			for i := range charged {
				charged[i].Source = SourceMemory
			}
			c.compare(t, Decision{Results: settled}, err, Decision{Results: settleModelAt(model, now, cost, charged)})
			charged = nil
		case op == 2:
			got, err = c.banByHand(t, model, now, checks[0])
			c.compare(t, got, err, modelAt(model, now, false, checks[:1]))
		case op == 1:
			got, err = c.limiter.Peek(ctx, checks...)
			c.compare(t, got, err, modelAt(model, now, false, checks))
		default:
			got, err = c.limiter.Take(ctx, checks...)
			c.compare(t, got, err, modelAt(model, now, true, checks))
			if got.Allowed && rapid.Bool().Draw(t, "keep") {
				charged = append(charged, got.Results...) // maybe with others on the same keys
			}
		}
		c.remembers(t, model, now, checks[c.steps%len(checks)])
		step := drawStep(t, limits[0], got)
		if holds { // no lease ends
			step = min(max(step, -year/10), year/10)
		}
		if step < 0 && c.steady {
			step = -step
		}
		if step < 0 {
			c.forget(model, now, limits)
		}
		now = min(now+step, lastTime)
	}
}

// banByHand bans a key or lifts its ban, and looks.
func (c *conformance) banByHand(t *rapid.T, m *Memory, now int64, check Check) (Decision, error) {
	length := rapid.OneOf(rapid.Just[int64](0), rapid.Int64Range(1, 3*roughPeriod(check.Limit).Microseconds())).Draw(t, "ban by hand")
	if err := c.limiter.Ban(context.Background(), time.Duration(length)*time.Microsecond, check); err != nil {
		t.Fatal(err)
	}
	if err := m.at(now).Ban(context.Background(), time.Duration(length)*time.Microsecond, check); err != nil {
		t.Fatal(err)
	}
	return c.limiter.Peek(context.Background(), check)
}

// remembers checks that the store does not forget what counts.
func (c *conformance) remembers(t *rapid.T, m *Memory, now int64, check Check) {
	var n memory.Count
	check.count(&n)
	count, denials, _ := m.ready().Remembered(&n, now)
	if count > 0 && !n.Held {
		c.keeps(t, now, count, keyOf("test", check))
	}
	if check.bans() && denials > 0 {
		c.keeps(t, now, denials, string(appendBanKey(nil, "test", &check)))
	}
}

func (c *conformance) keeps(t *rapid.T, now, until int64, key string) {
	if until <= now {
		return
	}
	if kept := now/1000*1000 + c.ttl(key).Microseconds(); kept < until {
		t.Fatalf("%s at %d: kept until %d, counts until %d", key, now, kept, until)
	}
}

// keys are of different slots for each rule, unless all rules have the same.
func (c *conformance) keys(rule int) [2]string {
	if c.sameKeys {
		rule = 0
	}
	return [2]string{fmt.Sprint("a", rule), fmt.Sprint("b", rule)}
}

// forget drops what equals keys never seen from store and model alike. When a
// clock steps back, what a store had not come round to dropping would count
// again.
func (c *conformance) forget(m *Memory, now int64, limits []Limit) {
	for i, l := range limits {
		for _, key := range c.keys(i) {
			check := Check{Rule: fmt.Sprint("rule-", i), Key: key, Limit: l}
			var n memory.Count
			check.count(&n)
			count, denials, byHand := m.ready().Remembered(&n, now)
			if count <= now {
				m.ready().Forget(&n, true, false)
				if !byHand || denials <= now {
					c.del(keyOf("test", check))
				}
				c.del(string(appendKey(nil, "test", &check, n.Row)) + keptSuffix)
			}
			if denials <= now {
				m.ready().Forget(&n, false, true)
				c.del(string(appendBanKey(nil, "test", &check)))
			}
		}
	}
}

func (c *conformance) compare(t *rapid.T, got Decision, err error, want Decision) {
	if err != nil {
		t.Fatal(err)
	}
	if got.Allowed != want.Allowed || len(got.Results) != len(want.Results) {
		t.Fatalf("got %+v\nwant %+v", got, want)
	}
	for i := range got.Results {
		if c.results++; got.Results[i].BannedFor > 0 {
			c.banned++
		}
		g, w := alone(got.Results[i]), alone(want.Results[i])
		w.Source = SourceRedis
		w.trace.State = g.trace.State // it also says when the key was written, which one that has expired forgets
		if g != w {
			t.Fatalf("result %d:\n got %+v\nwant %+v", i, g, w)
		}
	}
}

func memoryBackend(*testing.T) backend {
	now := int64(0)
	clock := func() time.Time { return time.UnixMicro(now) }
	m := &Memory{Now: clock}
	return backend{
		limiter: m,
		setTime: func(us int64) { now = us },
		flush:   func() { *m = Memory{Now: clock} },
	}
}

func miniBackend(t *testing.T) backend {
	t.Helper()
	mr := miniredis.RunT(t) // on a socket, since over a net.Pipe a long pipeline stands still
	mr.SetTime(time.UnixMicro(someTime))
	mr.ClockTTL(true)
	client := redis.NewClient(&redis.Options{
		Addr:                     mr.Addr(),
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		DisableIdentity:          true,
		ContextTimeoutEnabled:    true,
	})
	t.Cleanup(func() { _ = client.Close() })
	var clock int64
	return backend{
		limiter: &Redis{Client: client, Namespace: "test", Budget: roomy},
		setTime: func(us int64) {
			if us < clock {
				// As in Redis, what expires at a time expires at that time.
				for _, key := range mr.Keys() {
					mr.SetTTL(key, mr.TTL(key)+time.Duration(clock-us)*time.Microsecond)
				}
			}
			clock = us
			mr.SetTime(time.UnixMicro(us))
		},
		flush: mr.FlushAll,
		del:   func(key string) { mr.Del(key) },
		ttl:   mr.TTL,
	}
}

func realBackend(t *testing.T) backend {
	t.Helper()
	srv, clock := redistest.StartWithClock(t)
	client := srv.Client(t)
	return backend{
		limiter: &Redis{Client: client, Namespace: "test", Budget: roomy},
		setTime: func(us int64) { clock.Set(time.UnixMicro(us)) },
		flush:   func() { client.FlushAll(context.Background()) },
		del:     func(key string) { client.Del(context.Background(), key) },
		ttl:     func(key string) time.Duration { return client.PTTL(context.Background(), key).Val() },
	}
}

// inJoint is a backend whose decisions go through the joint script if they can.
func inJoint(start func(*testing.T) backend) func(*testing.T) backend {
	return func(t *testing.T) backend {
		t.Helper()
		b := start(t)
		r := b.limiter.(*Redis)
		t.Cleanup(func() {
			known, err := r.Client.(*redis.Client).ScriptExists(context.Background(), script.Joint.SHA()).Result()
			if !slices.Contains(known, true) {
				t.Errorf("the joint script was not run: %v", err)
			}
		})
		b.limiter = jointly{r}
		return b
	}
}

func clusterBackend(t *testing.T) backend {
	t.Helper()
	cluster, clock := redistest.StartClusterWithClock(t)
	client := cluster.Client(t)
	var masters []*redis.Client
	for _, m := range cluster.Masters {
		masters = append(masters, m.Client(t))
	}
	return backend{
		limiter: &Redis{Client: client, Namespace: "test", Budget: roomy},
		setTime: func(us int64) { clock.Set(time.UnixMicro(us)) },
		steady:  true,
		flush: func() {
			for _, m := range masters {
				m.FlushAll(context.Background())
			}
		},
		del: func(key string) { client.Del(context.Background(), key) },
		ttl: func(key string) time.Duration { return client.PTTL(context.Background(), key).Val() },
	}
}
