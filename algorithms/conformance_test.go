package algorithms

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"pgregory.net/rapid"

	"github.com/seed75154129/ratelimit/internal/redistest"
)

// A backend is a store under test, with a clock that the test sets.
type backend struct {
	counter Counter
	setTime func(us int64)
	flush   func()
}

// modelAt decides as Memory would at a given time: the reference for every
// store, since it is the steps in Go and nothing else.
func modelAt(m *Memory, us int64, charge bool, checks []Check) Decision {
	m.ready()
	var room [4]params
	ps, err := prepare(checks, &room)
	if err != nil {
		panic(err)
	}
	places := make([]place, len(checks))
	for i := range checks {
		places[i] = m.place(&checks[i], &ps[i])
	}
	return m.decideAt(us, charge, checks, ps, places)
}

// settleModelAt is modelAt for Settle.
func settleModelAt(m *Memory, us int64, cost int64, charged []Result) {
	corrections, err := prepareSettle(cost, charged, SourceMemory)
	if err != nil {
		panic(err)
	}
	for i := range corrections {
		c := &corrections[i]
		pl := m.place(&c.check, &c.params)
		m.settleAt(us, c, &pl)
	}
}

func miniBackend(t *testing.T) backend {
	t.Helper()
	mr := miniredis.NewMiniRedis()
	t.Cleanup(mr.Close)
	mr.SetTime(time.UnixMicro(1_795_000_000_000_000))
	mr.ClockTTL(true)
	client := redis.NewClient(&redis.Options{
		Addr:                     "127.0.0.1:0",
		Dialer:                   func(context.Context, string, string) (net.Conn, error) { return mr.Dial() },
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		DisableIdentity:          true,
		ContextTimeoutEnabled:    true,
	})
	t.Cleanup(func() { _ = client.Close() })
	var clock int64
	return backend{
		counter: &Redis{Client: client, Namespace: "test", Budget: roomy},
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
	}
}

// drawLimit draws limits from one per 30 days to a million per second.
func drawLimit(t *rapid.T, label string) Limit {
	a := rapid.SampledFrom(table[:]).Draw(t, label+" algorithm")
	l := Limit{
		Algorithm: a.name,
		Rate: rapid.OneOf(rapid.Int64Range(1, 12), rapid.SampledFrom([]int64{
			100, 7_919, 200_003, 999_983, 999_999, 1_000_000,
		})).Draw(t, label+" rate"),
		Period: rapid.SampledFrom([]time.Duration{
			time.Millisecond, 37 * time.Microsecond, time.Second, 1234567 * time.Microsecond, time.Minute, 24 * time.Hour, 30 * 24 * time.Hour,
		}).Draw(t, label+" period"),
	}
	switch {
	case a.queue:
		l.Burst = rapid.OneOf(rapid.Int64Range(1, 20), rapid.Just(l.Rate)).Draw(t, label+" burst")
	case a.bucket:
		l.Burst = rapid.OneOf(rapid.Just[int64](0), rapid.Int64Range(1, 20), rapid.Just(l.Rate)).Draw(t, label+" burst")
	case a.name == SlidingLog:
		l.Rate = min(l.Rate, maxLog)
	}
	if err := l.Validate(); err != nil {
		t.Fatal(err)
	}
	return l
}

func realBackend(t *testing.T) backend {
	t.Helper()
	srv, clock := redistest.StartWithClock(t)
	client := srv.Client(t)
	return backend{
		counter: &Redis{Client: client, Namespace: "test", Budget: roomy},
		setTime: func(us int64) { clock.Set(time.UnixMicro(us)) },
		flush:   func() { client.FlushAll(context.Background()) },
	}
}

// TestConformance takes random schedules on each store and on the steps in Go,
// and wants every field of every result equal.
func TestConformance(t *testing.T) {
	t.Run("miniredis", func(t *testing.T) { testConformance(t, miniBackend(t)) })
	t.Run("redis", func(t *testing.T) { testConformance(t, realBackend(t)) })
}

func testConformance(t *testing.T, b backend) {
	t.Helper()
	steps := 0
	rapid.Check(t, func(t *rapid.T) {
		b.flush()
		model := new(Memory)
		now := int64(1_795_000_000_000_000) + rapid.Int64Range(0, 86_400_000_000).Draw(t, "start")
		limits := make([]Limit, rapid.IntRange(1, 3).Draw(t, "rules"))
		for i := range limits {
			limits[i] = drawLimit(t, fmt.Sprint("rule ", i))
		}
		var charged []Result
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			steps++
			b.setTime(now)
			checks := make([]Check, len(limits))
			for i, l := range limits {
				checks[i] = Check{
					Rule:   fmt.Sprint("rule-", i),
					Key:    rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key"),
					Limit:  l,
					Cost:   min(rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(0, l.Quota()+1)).Draw(t, "cost"), l.Quota()+1),
					Shadow: rapid.IntRange(0, 7).Draw(t, "shadow") == 0,
				}
			}
			var longest time.Duration
			switch op := rapid.IntRange(0, 9).Draw(t, "op"); {
			case op == 0 && len(charged) > 0:
				cost := rapid.OneOf(rapid.Just[int64](0), rapid.Int64Range(0, 5)).Draw(t, "new cost")
				if err := b.counter.Settle(context.Background(), cost, charged...); err != nil {
					t.Fatal(err)
				}
				for i := range charged {
					charged[i].Source = SourceMemory
				}
				settleModelAt(model, now, cost, charged)
				charged = nil
			default:
				charge := op != 1
				var got Decision
				var err error
				if charge {
					got, err = b.counter.Take(context.Background(), checks...)
				} else {
					got, err = b.counter.Peek(context.Background(), checks...)
				}
				if err != nil {
					t.Fatal(err)
				}
				want := modelAt(model, now, charge, checks)
				compare(t, got, want)
				if charge && got.Allowed && rapid.Bool().Draw(t, "keep") {
					charged = got.Results
				}
				longest = got.RetryAfter()
			}
			p := limits[0].Period.Microseconds()
			dt := rapid.OneOf(
				rapid.Int64Range(0, 3),
				rapid.Int64Range(0, p/4+1),
				rapid.Int64Range(0, 3*p),
				rapid.Just(longest.Microseconds()%(1<<50)),
				rapid.Just(max(longest.Microseconds()-1, 0)%(1<<50)),
				rapid.Just(int64(-1)),
				rapid.Just(int64(-1_000_000)),
			).Draw(t, "dt")
			if dt < 0 {
				forget(b, model, now, limits)
			}
			now += dt
		}
	})
	t.Logf("%d steps", steps)
}

// forget drops what equals keys never seen from store and model alike. When a
// clock steps back, what a store had not come round to dropping would count
// again.
func forget(b backend, m *Memory, now int64, limits []Limit) {
	for i, l := range limits {
		for _, key := range []string{"a", "b"} {
			c := Check{Rule: fmt.Sprint("rule-", i), Key: key, Limit: l}
			p := paramsOf(&c)
			pl := m.place(&c, &p)
			if e := pl.shard.entries[pl.key]; e == nil || p.resetAfter(e.state, now, &p) <= 0 {
				delete(pl.shard.entries, pl.key)
				_ = b.counter.Reset(context.Background(), c)
			}
		}
	}
}

type fataler interface{ Fatalf(string, ...any) }

func compare(t fataler, got, want Decision) {
	if got.Allowed != want.Allowed || len(got.Results) != len(want.Results) {
		t.Fatalf("got %+v\nwant %+v", got, want)
	}
	for i := range got.Results {
		g, w := got.Results[i], want.Results[i]
		w.Source = g.Source
		if g != w {
			t.Fatalf("result %d:\n got %+v\nwant %+v", i, g, w)
		}
	}
}
