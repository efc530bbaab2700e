package outages

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/redistest"
)

// What was executed and not heard of is never executed again, and never
// admitted as if Redis had counted it.
func TestRepliesAreLost(t *testing.T) {
	t.Run("now and then", func(t *testing.T) {
		srv := redistest.Start(t)
		proxy := redistest.StartProxy(t, srv.Addr)
		r := load{client: failFast(t, proxy.Addr), length: 2500 * time.Millisecond}.start(t)
		for after := time.Duration(0); after < r.length-250*time.Millisecond; after += 100 * time.Millisecond {
			r.at(after)
			proxy.LoseReplies(2, "evalsha")
		}
		r.end()
		// With one reply all of its batch is lost. How many are in a batch depends
		// on how busy the machine is.
		lost := r.wire.lost
		if lost == 0 {
			t.Error("no reply was lost")
		}
		s := r.check(promise{
			row:     row{11, "20 replies per second lost"},
			servers: []*redistest.Server{srv},
			waits:   r.strays(),
			alone:   lost,
		})
		if s.alone < lost {
			t.Errorf("%d requests were decided without Redis, want at least the %d whose reply was lost", s.alone, lost)
		}
	})
	t.Run("all", func(t *testing.T) {
		onlyAll(t)
		srv := redistest.Start(t)
		proxy := redistest.StartProxy(t, srv.Addr)
		r := load{client: failFast(t, proxy.Addr), length: total}.start(t)
		r.without(proxy.StallReplies, func() { proxy.Resume(t) })
		r.check(promise{
			row:     row{11, "all replies lost for 1.5 s"},
			servers: []*redistest.Server{srv},
			waits:   r.underWay(),
			back:    soon,
			opens:   1,
		})
	})
}

// connected is a client whose pool is full of connections: a new one takes two
// round trips until it has an answer, which latency can put beyond the budget.
func connected(t *testing.T, proxy *redistest.Proxy) *redis.Client {
	t.Helper()
	const conns, patience = 40, 5 * time.Second
	client := redis.NewClient(algorithms.FailFast(&redis.Options{
		Addr: proxy.Addr, PoolSize: conns, PoolTimeout: patience, DialTimeout: patience, ReadTimeout: patience,
	}))
	t.Cleanup(func() { client.Close() })
	proxy.SetLatency(20*time.Millisecond, 0) // so that all pings are under way at once
	defer proxy.Resume(t)
	var pings sync.WaitGroup
	for range conns {
		pings.Go(func() {
			if err := client.Ping(t.Context()).Err(); err != nil {
				t.Error(err)
			}
		})
	}
	pings.Wait()
	if n := client.PoolStats().TotalConns; n != conns {
		t.Fatalf("%d connections, want %d", n, conns)
	}
	return client
}

// Latency well below the budget is nothing but latency; above, it is an outage.
// Just below, the machine decides how many answers are late.
func TestLatency(t *testing.T) {
	onlyAll(t)
	for _, latency := range []time.Duration{20 * time.Millisecond, 60 * time.Millisecond, 500 * time.Millisecond} {
		t.Run(fmt.Sprint(latency), func(t *testing.T) {
			srv := redistest.Start(t)
			proxy := redistest.StartProxy(t, srv.Addr)
			r := load{client: connected(t, proxy), rate: 300, length: total}.start(t)
			p := promise{row: row{12, fmt.Sprintf("%v more latency for 1.5 s, connections already open", latency)}, servers: []*redistest.Server{srv}}
			r.at(begins)
			if latency < budget {
				proxy.SetLatency(latency, 0)
				r.at(begins + lasts)
				proxy.Resume(t)
				p.waits, p.latency = len(r.records), latency
			} else {
				r.outage(func() { proxy.SetLatency(latency, 0) })
				r.at(begins + lasts)
				r.back(func() { proxy.Resume(t) })
				p.waits, p.back, p.opens = r.underWay(), soon, 1
			}
			r.check(p)
		})
	}
	// Each new connection fails: it takes two round trips until it has an answer.
	// So the pool does not grow as it has to.
	t.Run("above half the budget, without connections", func(t *testing.T) {
		srv := redistest.Start(t)
		proxy := redistest.StartProxy(t, srv.Addr)
		r := load{client: failFast(t, proxy.Addr), rate: 300, length: 4 * time.Second}.start(t)
		r.without(func() { proxy.SetLatency(budget*3/5, 0) }, func() { proxy.Resume(t) })
		r.check(promise{
			row:     row{12, fmt.Sprintf("%v more latency for 1.5 s, new connections needed", budget*3/5)},
			servers: []*redistest.Server{srv},
			waits:   len(r.records),
			back:    2 * soon, // it may have opened a second time
			opens:   2,
		})
	})
	t.Run("around the budget", func(t *testing.T) {
		srv := redistest.Start(t)
		proxy := redistest.StartProxy(t, srv.Addr)
		r := load{client: connected(t, proxy), rate: 300, length: 6 * time.Second}.start(t)
		r.at(begins)
		r.outage(func() { proxy.SetLatency(budget, budget/2) })
		r.at(begins + 4*time.Second)
		r.back(func() { proxy.Resume(t) })
		r.check(promise{
			row:     row{12, "25 to 75 ms more latency"},
			servers: []*redistest.Server{srv},
			waits:   len(r.records),
			back:    4 * soon, // after so much flapping it is careful
			opens:   3,
		})
	})
}

// A server that comes and goes is not stormed each time.
func TestFlapping(t *testing.T) {
	onlyAll(t)
	srv := redistest.Start(t)
	proxy := redistest.StartProxy(t, srv.Addr)
	client := failFast(t, proxy.Addr)
	r := load{client: client, length: 11 * time.Second}.start(t)
	const times = 4
	before := proxy.Accepted()
	r.outage(func() {
		for i := range times {
			r.at(time.Duration(2*i) * time.Second)
			proxy.Refuse()
			proxy.Cut()
			r.at(time.Duration(2*i+1) * time.Second)
			proxy.Resume(t)
		}
	})
	r.back(func() {})
	r.check(promise{
		row:     row{18, "4 times down for 1 s, then up for 1 s"},
		servers: []*redistest.Server{srv},
		waits:   r.strays(),
		back:    3500 * time.Millisecond, // it has become careful: eight good probes, after go-redis has dialled
		opens:   times,
	})
	if n, most := proxy.Accepted()-before, times*client.Options().PoolSize; n > most && !r.busy() {
		t.Errorf("%d connections, want at most %d: a pool each time that it comes back", n, most)
	}
	r.wire.mu.Lock()
	defer r.wire.mu.Unlock()
	if most := int(r.length.Seconds() * 7 * 2); r.wire.probes > most {
		t.Errorf("%d commands of probes, want at most %d", r.wire.probes, most)
	}
}
