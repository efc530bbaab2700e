package middleware_test

import (
	"net/http"
	"runtime/metrics"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// scheduled is how many times goroutines were made to run, of those that the
// runtime samples: one in eight.
func scheduled() (n uint64) {
	sample := []metrics.Sample{{Name: "/sched/latencies:seconds"}}
	metrics.Read(sample)
	for _, count := range sample[0].Value.Float64Histogram().Counts {
		n += count
	}
	return n
}

// Requests of one key that wait for their turn are woken once each: two thousand at
// once do not take two million wake-ups, as if each woke all others.
func TestWhoWaitsIsWokenOnce(t *testing.T) {
	const requests = 2000
	synctest.Test(t, func(t *testing.T) {
		slow := &slowly{Memory: new(algorithms.Memory)}
		r := failures(1)
		r.Ban = algorithms.Ban{After: 2 * requests, For: time.Hour}
		m := mustNew(t, ratelimit.Config{Limiter: slow, Rules: []ratelimit.Rule{r}})
		h := m.Handler(answered(http.StatusUnauthorized, 0))
		together(1, h)
		slow.takes = 10 * time.Microsecond // so that all wait at once, and nobody in vain
		before := scheduled()
		if denied := together(requests, h); denied != requests {
			t.Errorf("%d were denied", denied)
		}
		if woken := 8 * (scheduled() - before); woken > requests*requests/8 {
			t.Errorf("goroutines were woken some %d times for %d requests", woken, requests)
		}
		if isBanned(t, m) {
			t.Error("banned too early")
		}
		if together(requests, h); !isBanned(t, m) {
			t.Error("not banned: some have waited in vain")
		}
	})
}

// Requests that have waited in vain are spared, and do not spare those that come
// after them: otherwise whoever sends more than the limiter can decide in turn would
// never be banned.
func TestWhoWaitsInVainSparesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowly{Memory: new(algorithms.Memory), takes: 20 * time.Millisecond}
		r := failures(1)
		r.Ban = algorithms.Ban{After: 10, For: time.Hour}
		m := mustNew(t, ratelimit.Config{Limiter: slow, Rules: []ratelimit.Rule{r}})
		h := m.Handler(answered(http.StatusUnauthorized, 0))
		var all sync.WaitGroup
		for i := range 100 { // connections
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				for range 20 {
					serve(h, "POST /")
				}
			})
		}
		all.Wait()
		if !isBanned(t, m) {
			t.Error("not banned")
		}
	})
}

// A limiter that panics ends the request and nothing else, also in Take: those that
// come later need not wait for it, and their denials count.
func TestAPanicOfTheLimiterKeepsNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		panics := true
		l := &hook{check: func(*algorithms.Check) {
			if panics {
				panic("a hook of the client")
			}
		}}
		r := failures(1)
		r.Ban = algorithms.Ban{After: 2, For: time.Hour}
		m := mustNew(t, ratelimit.Config{Limiter: l, Rules: []ratelimit.Rule{r}})
		func() {
			defer func() { _ = recover() }()
			_, _ = m.Take(request("POST /"))
		}()
		panics = false
		begun := time.Now()
		for range 3 {
			if _, err := m.Take(request("POST /")); err != nil {
				t.Fatal(err)
			}
		}
		if waited := time.Since(begun); waited > 0 || !isBanned(t, m) {
			t.Errorf("waited for %s, banned: %t", waited, isBanned(t, m))
		}
	})
}
