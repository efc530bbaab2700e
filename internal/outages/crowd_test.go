package outages

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/internal/redistest"
)

// Clients that leave at once are counted, are no failure of Redis, and leave
// nothing behind.
func TestClientsThatLeave(t *testing.T) {
	srv := redistest.Start(t)
	r := load{client: failFast(t, srv.Addr), length: 2 * time.Second}.start(t)
	r.at(250 * time.Millisecond)
	before := runtime.NumGoroutine()

	gone, leave := context.WithCancel(t.Context())
	leave()
	clients := map[bool]int64{false: 1000, true: 10_000}[all]
	var counted, left atomic.Int64
	var crowd sync.WaitGroup
	for range 8 {
		crowd.Go(func() {
			for left.Add(1) <= clients {
				d, err := r.limiter.Take(gone, algorithms.Check{Rule: "leaving", Key: "all", Limit: rules()[0].Limit})
				if err != nil {
					t.Error(err)
				} else if d.Results[0].Source == algorithms.SourceRedis {
					counted.Add(d.Results[0].Charged)
				}
			}
		})
	}
	crowd.Wait()
	const some = 50 // the load's own come and go
	eventually(t, func() error {
		if n := runtime.NumGoroutine(); n > before+some {
			return fmt.Errorf("%d goroutines, %d before", n, before)
		}
		return nil
	})
	r.check(promise{
		row:     row{15, "10,000 extra requests whose clients have already hung up"},
		servers: []*redistest.Server{srv},
		waits:   len(r.records), // they share the connections with the crowd
	})
	if n := counted.Load(); all && n < clients*99/100 && !r.busy() {
		t.Errorf("%d of %d were counted", n, clients)
	}
}

// More requests at once than Redis can answer within the budget are an outage
// like others: nobody waits longer, and it ends with the crowd.
func TestCrowd(t *testing.T) {
	onlyAll(t)
	srv := redistest.Start(t)
	r := load{client: failFast(t, srv.Addr), length: 3 * time.Second}.start(t)
	r.at(time.Second)
	before := runtime.NumGoroutine()
	const clients = 10_000
	var passed atomic.Int64
	var crowd sync.WaitGroup
	r.outage(func() {
		for range clients {
			crowd.Go(func() {
				d, err := r.limiter.Take(t.Context(), algorithms.Check{Rule: "crowd", Key: "all", Limit: algorithms.Limit{Rate: limit, Period: forGood}})
				if err != nil {
					t.Error(err)
				}
				if d.Allowed {
					passed.Add(1)
				}
			})
		}
		crowd.Wait()
	})
	r.back(func() {})
	eventually(t, func() error {
		if n := runtime.NumGoroutine(); n > before+50 { // the load's own come and go
			return fmt.Errorf("%d goroutines, %d before", n, before)
		}
		return nil
	})
	r.check(promise{
		row:     row{15, "10,000 extra requests in one moment"},
		servers: []*redistest.Server{srv},
		waits:   len(r.records),
		back:    soon,
		opens:   1,
	})
	if n := passed.Load(); n > limit+share {
		t.Errorf("%d passed, want at most a limit of %d and a share of %d", n, limit, share)
	}
}

// A flood of clients that nobody knows, while Redis is away for good, takes no
// more and more memory, frees nobody, and denies hardly anybody.
func TestFloodWithoutRedis(t *testing.T) {
	onlyAll(t)
	srv := redistest.Start(t)
	client := failFast(t, srv.Addr)
	srv.Stop(t)
	limiter := &failmode.Guard{Limiter: &algorithms.Redis{Client: client, Namespace: namespace}, Instances: instances, Logger: silent}
	defer limiter.Close()
	take := func(kind string, n int) bool {
		d, err := limiter.Take(t.Context(), algorithms.Check{Rule: "local", Key: fmt.Sprint(kind, n), Limit: algorithms.PerMinute(limit)})
		if err != nil {
			t.Error(err)
		}
		return d.Allowed
	}
	for range 10 {
		take("first", 0) // until the limiter knows that Redis is away
	}
	if openShards(limiter) == 0 {
		t.Fatal("nothing is down")
	}

	const (
		perSecond = 300_000
		seconds   = 8
		legit     = 5_000 // clients, with five requests each
		abusers   = 20    // with ten times their share
	)
	admitted := make([]int, abusers)
	requests, denied, flooded := 0, 0, 0
	var heaps []uint64
	begin := time.Now()
	const step = 5 * time.Millisecond
	for at := time.Duration(0); at < seconds*time.Second; at += step {
		sleepUntil(t.Context(), begin.Add(at))
		part := float64(at) / float64(seconds*time.Second)
		const unknown = perSecond * int(step/time.Millisecond) / 1000
		var flood sync.WaitGroup
		for half := range 2 {
			flood.Go(func() {
				for i := half; i < unknown; i += 2 {
					take("flood", flooded+i)
				}
			})
		}
		flood.Wait()
		flooded += unknown
		for i := range abusers {
			if take("abuser", i) {
				admitted[i]++
			}
		}
		for requests < int(part*5*legit) {
			if !take("legit", requests%legit) {
				denied++
			}
			requests++
		}
		if at%time.Second == 0 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			heaps = append(heaps, m.HeapAlloc)
		}
	}
	took := time.Since(begin)
	t.Logf("%d unknown clients in %v; heap after each second %d; %d of %d legitimate requests denied; abusers were admitted %v",
		flooded, took.Round(time.Millisecond), heaps, denied, requests, admitted)
	for i, n := range admitted {
		if most := share + int(took.Minutes()*share) + 1; n > most {
			t.Errorf("abuser %d: admitted %d, want at most %d", i, n, most)
		}
	}
	if denied*1000 > requests {
		t.Errorf("%d of %d requests of clients below their limits were denied", denied, requests)
	}
	if settled := heaps[len(heaps)/2]; heaps[len(heaps)-1] > settled+settled/10 {
		t.Errorf("the heap still grows: %d", heaps)
	}
	rate := float64(flooded) / took.Seconds()
	r := row{16, fmt.Sprintf("%d,000 new clients per second, Redis down throughout", int(rate/1000+0.5))}
	if rate < perSecond/2 {
		r.untimed(t)
	}
	all := flooded + requests + int(seconds*time.Second/step)*abusers
	r.write(summary{requests: all, answered: all, alone: all, wronglyDeny: denied, slowest: -1}, false)
}
