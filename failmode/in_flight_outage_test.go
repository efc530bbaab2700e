package failmode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/redistest"
)

// take takes n places, and fails if fewer are there.
func takeN(t *testing.T, l algorithms.Limiter, n int, check algorithms.Check) (ds []algorithms.Decision) {
	t.Helper()
	for i := range n {
		d := taken(t, l, check)
		if !d.Allowed {
			t.Fatalf("place %d: denied: %+v", i+1, d.Results)
		}
		ds = append(ds, d)
	}
	return ds
}

// mostAtOnce is how many keys the store is told of by one command.
const mostAtOnce = 100

// What holds a place holds it, for as long as it runs, whatever becomes of the store.
func TestInFlightOverTime(t *testing.T) {
	lost := func() fault { return fault{lost: true} }
	for _, c := range []struct {
		name string
		run  func(t *testing.T, s *counts, g *Guard, l *line)
	}{
		{"an outage with five, in which three more come", func(t *testing.T, s *counts, g *Guard, l *line) {
			takeN(t, g, 5, atOnce(8, "k"))
			l.dies(true)
			for range 20 { // until the circuit is open
				end(t, g, taken(t, g, atOnce(8, "else")))
			}
			synctest.Wait()
			if len(down(g)) == 0 {
				t.Fatal("the circuit is closed")
			}
			takeN(t, g, 3, atOnce(8, "k"))
			if d := taken(t, g, atOnce(8, "k")); d.Allowed {
				t.Error("a ninth was admitted in the outage")
			}
			time.Sleep(time.Minute)
			if n := s.size("r:k"); n != 0 {
				t.Fatalf("%d in flight, want 0: they have lapsed", n)
			}
			l.dies(false)
			for len(down(g)) > 0 {
				time.Sleep(time.Millisecond)
			}
			if n := s.size("r:k"); n != 8 {
				t.Errorf("%d in flight as the circuit closes, want 8", n)
			}
			other, _ := s.process(t)
			if d := taken(t, other, atOnce(8, "k")); d.Allowed {
				t.Error("another process admits a ninth")
			}
		}},
		{"those that failed open", func(t *testing.T, s *counts, g *Guard, l *line) {
			l.dies(true)
			for range 20 {
				taken(t, g, atOnce(8, "else"))
			}
			synctest.Wait()
			check := atOnce(1, "k")
			check.Fail = Open
			before := g.inFlight.Keys()
			for i := range 100 {
				other := check
				other.Key = fmt.Sprint("k", i)
				end(t, g, takeN(t, g, 1, other)[0])
			}
			if n := g.inFlight.Keys(); n != before {
				t.Errorf("%d keys are known of which the store never was, want none", n-before)
			}
			ds := takeN(t, g, 3, check)
			l.dies(false)
			for len(down(g)) > 0 {
				time.Sleep(time.Millisecond)
			}
			if n := s.size("r:k"); n != 3 {
				t.Errorf("%d in flight as the circuit closes, want 3", n)
			}
			for _, d := range ds {
				end(t, g, d)
				end(t, g, d)
			}
			time.Sleep(10 * time.Millisecond)
			if n := s.size("r:k"); n != 0 {
				t.Errorf("%d in flight, want 0", n)
			}
		}},
		{"the store's clock leaps ahead, and back", func(t *testing.T, s *counts, g *Guard, _ *line) {
			takeN(t, g, 3, atOnce(8, "k"))
			for _, ahead := range []time.Duration{time.Hour, 365 * 24 * time.Hour, 0} {
				s.mu.Lock()
				s.ahead = ahead
				s.mu.Unlock()
				time.Sleep(5*time.Second + 100*time.Millisecond)
				if n := s.size("r:k"); n != 3 {
					t.Errorf("%d in flight with the clock %s ahead, want 3", n, ahead)
				}
			}
		}},
		{"cut off for longer than a lease, in which one ends", func(t *testing.T, s *counts, g *Guard, l *line) {
			ds := takeN(t, g, 2, atOnce(2, "k"))
			l.becomes(lost)
			time.Sleep(20 * time.Second)
			other, _ := s.process(t)
			takeN(t, other, 2, atOnce(2, "k")) // its places were given away
			end(t, g, ds[0])
			l.becomes(nil)
			time.Sleep(6 * time.Second)
			if n := s.size("r:k"); n != 3 {
				t.Errorf("%d in flight, want the 3 that run", n)
			}
			end(t, g, ds[1])
			time.Sleep(6 * time.Second)
			if n := s.size("r:k"); n != 2 {
				t.Errorf("%d in flight, want 2", n)
			}
		}},
		{"a release that is lost", func(t *testing.T, s *counts, g *Guard, l *line) {
			ds := takeN(t, g, 2, atOnce(2, "k"))
			l.becomes(lost)
			end(t, g, ds[0])
			end(t, g, ds[1])
			time.Sleep(40 * time.Millisecond)
			l.becomes(nil)
			time.Sleep(time.Second)
			if n := s.size("r:k"); n != 0 {
				t.Errorf("%d in flight, want 0: it is sent again", n)
			}
		}},
		{"a thousand at Close", func(t *testing.T, s *counts, g *Guard, l *line) {
			ds := takeN(t, g, 1000, atOnce(1000, "k"))
			for _, d := range ds[:500] {
				end(t, g, d)
			}
			begun := time.Now()
			_ = g.Close()
			if took := time.Since(begun); took > plainBudget {
				t.Errorf("Close took %s", took)
			}
			if n := s.size("r:k"); n != 0 {
				t.Errorf("%d in flight, want none", n)
			}
			l.state.Lock()
			most := l.mostTold
			l.state.Unlock()
			if most > mostAtOnce { // Redis does nothing else meanwhile
				t.Errorf("%d keys released by one command", most)
			}
			for _, d := range ds[500:] { // handlers that run on
				end(t, g, d)
			}
		}},
		{"at Close, a renewal is on the way", func(t *testing.T, s *counts, g *Guard, l *line) {
			ds := takeN(t, g, 2, atOnce(2, "k"))
			l.becomes(func() fault { return fault{late: plainBudget / 2} })
			time.Sleep(aLease/3 + plainBudget/4)
			synctest.Wait()
			if all, _ := l.heard(); all != 1 {
				t.Fatalf("%d keys renewed, want 1", all)
			}
			end(t, g, ds[0])
			_ = g.Close()
			if n := s.size("r:k"); n != 0 {
				t.Errorf("%d in flight, want none", n)
			}
			time.Sleep(time.Second)
			if n := s.size("r:k"); n != 0 {
				t.Errorf("%d in flight a second later, want none", n)
			}
		}},
		{"Close without the store", func(t *testing.T, s *counts, g *Guard, l *line) {
			takeN(t, g, 2, atOnce(2, "k"))
			l.becomes(lost)
			begun := time.Now()
			_ = g.Close()
			if took := time.Since(begun); took > 2*plainBudget {
				t.Errorf("Close took %s", took)
			}
			time.Sleep(aLease)
			if n := s.size("r:k"); n != 0 {
				t.Errorf("%d in flight, want none", n)
			}
		}},
		{"as much as may run runs here", func(t *testing.T, _ *counts, g *Guard, l *line) {
			ds := takeN(t, g, 2, atOnce(2, "k"))
			asked := 0
			l.becomes(func() fault { asked++; return fault{} })
			for range 100 {
				if d := taken(t, g, atOnce(2, "k")); d.Allowed || d.Results[0].RetryAfter != time.Second {
					t.Fatalf("%+v; want a denial for a second", d.Results)
				}
			}
			if asked != 0 {
				t.Errorf("%d commands were sent, want none", asked)
			}
			end(t, g, ds[0])
			time.Sleep(10 * time.Millisecond)
			takeN(t, g, 1, atOnce(2, "k")) // denials are not remembered
		}},
		{"who ends twice", func(t *testing.T, s *counts, g *Guard, _ *line) {
			ds := takeN(t, g, 3, atOnce(3, "k"))
			copied := algorithms.Decision{Results: []algorithms.Result{ds[0].Results[0]}}
			end(t, g, ds[0])
			end(t, g, copied)
			other, _ := s.process(t)
			foreign := takeN(t, other, 1, atOnce(9, "k"))[0]
			end(t, g, copied)
			results, err := g.Settle(t.Context(), algorithms.Charge{Result: ds[2].Results[0]}, algorithms.Charge{Result: ds[1].Results[0], Cost: 2})
			if !errors.Is(err, algorithms.ErrInvalidCheck) || len(results) > 0 {
				t.Errorf("settled at 2: %+v, %v; want nothing settled, as in a Memory", results, err)
			}
			time.Sleep(10 * time.Second)
			if n := s.size("r:k"); n != 3 {
				t.Errorf("%d in flight, want 3", n)
			}
			end(t, other, foreign)
		}},
		{"many that are due together", func(t *testing.T, s *counts, g *Guard, l *line) {
			for i := range 20_000 {
				takeN(t, g, 1, atOnce(200, fmt.Sprint("k", i)))
			}
			takeN(t, g, 199, atOnce(200, "k7"))
			for range 20 {
				time.Sleep(time.Second)
				if n := s.size("r:k7"); n != 200 {
					t.Fatalf("%d in flight, want 200", n)
				}
			}
			if all, most := l.heard(); all < 4*20_000 || all > 6*20_000 || most > mostAtOnce {
				t.Errorf("%d renewals, %d at once; want one of each key each 3.75 to 5 s, and %d at once", all, most, mostAtOnce)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s counts
				g, l := s.process(t)
				c.run(t, &s, g, l)
			})
		})
	}
}

// waitFor polls for a condition.
func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for range 8000 {
		if ok() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("never")
}

// inFlightIn is how many run of a key.
func inFlightIn(t *testing.T, client *redis.Client, key string) int64 {
	t.Helper()
	fields, err := client.HGetAll(context.Background(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	n, all := int64(0), int64(0)
	for field, text := range fields {
		if field == "all" {
			_, err = fmt.Sscan(text, &all)
		} else {
			var epoch, granted, ended int64
			_, err = fmt.Sscan(text, &epoch, &granted, &ended)
			n += granted - ended // none has lapsed
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if n != all {
		t.Errorf("%v: the processes have %d, want %d", fields, n, all)
	}
	return n
}

// guardOn is a Guard on a server, through a proxy.
func guardOn(t *testing.T, srv *redistest.Server, addr string) *Guard {
	t.Helper()
	o := srv.Options()
	o.Addr = addr
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	g := &Guard{Limiter: &algorithms.Redis{Client: client, Namespace: "shop"}, Instances: 1}
	t.Cleanup(func() { _ = g.Close() })
	if err := g.Warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	return g
}

const hashOfK = "shop:{k}:r:if2:15s"

// A failover to a replica that lacks what runs opens no circuit. Processes that notice it tell
// the new server at once; others within a third of a lease, as after FLUSHALL.
func TestInFlightAfterAFailover(t *testing.T) {
	t.Parallel()
	before, after := redistest.Start(t), redistest.Start(t)
	proxy := redistest.StartProxy(t, before.Addr)
	g := guardOn(t, before, proxy.Addr)
	check := atOnce(9, "k")
	check.Limit.Period = time.Hour
	takeN(t, g, 3, check)
	proxy.MoveTo(after.Addr)
	proxy.StallReplies()
	var asks sync.WaitGroup
	asks.Go(func() { _, _ = g.Take(context.Background(), atOnce(9, "else")) })
	old, replica := before.Client(t), after.Client(t)
	waitFor(t, func() bool { return old.Exists(t.Context(), "shop:{else}:r:if2:15s").Val() > 0 })
	proxy.Cut()
	proxy.Resume(t)
	asks.Wait()
	waitFor(t, func() bool { return inFlightIn(t, replica, "shop:{k}:r:if2:1h") == 3 })
}

// A Reset deletes the count, and Close frees it; who runs is told again and released all the same.
func TestInFlightBesideAnOperator(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	g := guardOn(t, srv, srv.Addr)
	check := atOnce(9, "k")
	ds := takeN(t, g, 5, check)
	if d, err := g.Peek(t.Context(), check); err != nil || d.Results[0].Remaining != 4 {
		t.Fatalf("%+v, %v; want 4 left", d, err)
	}
	if err := g.Reset(t.Context(), check); err != nil {
		t.Fatal(err)
	}
	g.inFlight.Tell(0, true) // or in a third of the lease
	if n := inFlightIn(t, srv.Client(t), hashOfK); n != 5 {
		t.Errorf("%d after the reset, want 5", n)
	}
	for _, d := range ds {
		end(t, g, d)
	}
	waitFor(t, func() bool { return inFlightIn(t, srv.Client(t), hashOfK) == 0 })
	running := takeN(t, g, 2, check)
	_ = g.Close() // after which requests are counted, and end, one by one
	last := takeN(t, g, 1, check)[0]
	if n := inFlightIn(t, srv.Client(t), hashOfK); n != 1 {
		t.Errorf("%d after Close, want the one that came then", n)
	}
	for _, d := range append(running, last) {
		end(t, g, d)
	}
	if n := inFlightIn(t, srv.Client(t), hashOfK); n != 0 {
		t.Errorf("%d at the end, want none", n)
	}
}

// A renewal that Redis refuses inside of the script has failed, and is tried again each
// second. A foreign value in the place of a set is in nobody's way.
func TestARefusedRenewalHasFailed(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	g := guardOn(t, srv, srv.Addr)
	takeN(t, g, 1, atOnce(9, "k"))
	takeN(t, g, 1, atOnce(9, "other"))
	client := srv.Client(t)
	if err := client.Set(t.Context(), "shop:{other}:r:if2:15s", "foreign", 0).Err(); err != nil {
		t.Fatal(err)
	}
	renewed := func() int64 {
		before := g.inFlight.Failed.Load()
		g.inFlight.Tell(0, true)
		return 2 - (g.inFlight.Failed.Load() - before)
	}
	if n := renewed(); n != 2 {
		t.Errorf("%d renewed, want 2", n)
	}
	if err := client.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if n := renewed(); n != 0 {
		t.Errorf("%d renewed without memory, want 0", n)
	}
	if err := client.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	if n := renewed(); n != 2 {
		t.Errorf("%d renewed with memory, want 2", n)
	}
}

// All or nothing, wherever the keys are, also while the server of one of them goes away.
func TestInFlightIsAllOrNothing(t *testing.T) {
	t.Parallel()
	servers := []*redistest.Server{redistest.Start(t), redistest.Start(t)}
	ring := redis.NewRing(algorithms.FailFast(&redis.RingOptions{Addrs: map[string]string{"0": servers[0].Addr, "1": servers[1].Addr}, HeartbeatFrequency: time.Hour}))
	t.Cleanup(func() { _ = ring.Close() })
	for name, client := range map[string]algorithms.Client{"server": servers[0].Client(t), "cluster": redistest.StartCluster(t).Client(t), "ring": ring} {
		g := &Guard{Limiter: &algorithms.Redis{Client: client, Namespace: name, Budget: time.Second}, Instances: 1, Logger: slog.New(slog.DiscardHandler)}
		t.Cleanup(func() { _ = g.Close() })
		checks := []algorithms.Check{atOnce(5, "a"), atOnce(5, "b"), {Rule: "last", Key: "c", Limit: algorithms.PerHour(1), Fail: Closed}}
		left := func(n int64) bool {
			d, err := g.Peek(t.Context(), checks[:2]...)
			return err == nil && d.Results[0].Remaining == n && d.Results[1].Remaining == n
		}
		denied := func(times int) {
			for range times {
				if d := taken(t, g, checks...); d.Allowed {
					t.Fatalf("%s: admitted", name)
				}
			}
		}
		d := taken(t, g, checks...)
		if !d.Allowed {
			t.Fatalf("%s: %+v", name, d)
		}
		denied(5)
		waitFor(t, func() bool { return left(4) })
		end(t, g, d)
		waitFor(t, func() bool { return left(5) })
		if name != "ring" {
			continue
		}
		first, last := g.store.Shard(checks[0].Key), &checks[2]
		for k := range 1000 { // the last on the other server
			if checks[1].Key = fmt.Sprint("b", k); g.store.Shard(checks[1].Key) == first {
				break
			}
		}
		for k := range 1000 {
			if last.Key = fmt.Sprint("c", k); g.store.Shard(last.Key) != first {
				break
			}
		}
		for _, s := range servers {
			if s.Addr == g.store.Names(g.store.Shard(last.Key))[0] {
				s.Stop(t)
			}
		}
		for len(down(g)) == 0 {
			if d := taken(t, g, checks...); d.Allowed { // counted here, because the dial took too long
				end(t, g, d)
			}
		}
		denied(5)
		waitFor(t, func() bool { return left(5) })
	}
}
