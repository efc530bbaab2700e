package middleware_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/redistest"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// Requests that cannot wait take no slots, so that a queue of 20 a second serves
// 20 a second, however many come that cannot be served in time or have no room.
func TestImpatientRequestsStarveNoQueue(t *testing.T) {
	for name, c := range map[string]struct {
		maxWaiting int
		deadline   time.Duration // of the requests; 0 is none
		workers    int
	}{
		"one with a deadline":    {0, 300 * time.Millisecond, 1},
		"many with a deadline":   {0, 300 * time.Millisecond, 32},
		"no time at all":         {0, time.Nanosecond, 32},
		"little room to wait":    {4, 0, 16},
		"both":                   {4, 300 * time.Millisecond, 32},
		"room for one at a time": {1, 0, 16},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var served atomic.Int64
				m := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), MaxWaiting: c.maxWaiting, Rules: []ratelimit.Rule{{Name: "queue", Key: keyfunc.Everyone,
					Limit: algorithms.Limit{Rate: 20, Period: time.Second, Burst: 100, Algorithm: algorithms.LeakyBucket}}}})
				h := m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) }))
				end := time.Now().Add(5 * time.Second)
				var workers sync.WaitGroup
				for i := range c.workers {
					workers.Go(func() {
						time.Sleep(time.Duration(i) * time.Microsecond)
						for time.Now().Before(end) {
							ctx, cancel := context.WithCancel(t.Context())
							if c.deadline > 0 {
								ctx, cancel = context.WithTimeout(t.Context(), c.deadline)
							}
							w := do(h, httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx))
							cancel()
							if w.Code == http.StatusTooManyRequests {
								time.Sleep(20 * time.Millisecond)
							}
						}
					})
				}
				workers.Wait()
				want := int64(95)
				if c.deadline == time.Nanosecond { // who comes when a slot begins
					want = 80
				}
				if n := served.Load(); n < want || n > 110 {
					t.Errorf("served %d in 5s of 20 a second", n)
				}
			})
		})
	}
}

// A denial for want of patience says when it would have been the request's turn,
// less what it could wait, and charges nothing.
func TestADenialForWantOfPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := queueOf(t, 10, 0)
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		for range 6 { // the next one's turn is in 1.2s
			if _, err := m.Take(r); err != nil {
				t.Fatal(err)
			}
		}
		for deadline, want := range map[time.Duration]time.Duration{
			time.Second:            200*time.Millisecond + time.Microsecond,
			500 * time.Millisecond: 700*time.Millisecond + time.Microsecond,
			time.Nanosecond:        1200*time.Millisecond - time.Microsecond,
		} {
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			d, err := m.Peek(r.WithContext(ctx))
			cancel()
			if err != nil || d.Allowed || d.RetryAfter() != want {
				t.Errorf("with %s left: RetryAfter %s, want %s; %v", deadline, d.RetryAfter(), want, err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin, w := time.Now(), httptest.NewRecorder()
		m.Handler(ok).ServeHTTP(w, r.WithContext(ctx))
		if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "1" || time.Since(begin) != 0 {
			t.Errorf("%d, Retry-After %s after %s", w.Code, w.Header().Get("Retry-After"), time.Since(begin))
		}
		untouched(t, m, r, 1.2, 994)
	})
}

// The time that the store may take for the decision is not left for waiting.
func TestTheBudgetIsNotWaited(t *testing.T) {
	guard := guardOf(t, redistest.Start(t).Client(t)) // with a budget of 5 s
	m := mustNew(t, ratelimit.Config{Limiter: guard, Rules: []ratelimit.Rule{{Name: "queue", Key: keyfunc.Everyone,
		Limit: algorithms.Limit{Rate: 1, Period: 3 * time.Second, Burst: 9, Algorithm: algorithms.LeakyBucket}}}})
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for _, c := range []struct {
		deadline time.Duration
		want     bool
	}{{time.Minute, true}, {time.Minute, true}, {10 * time.Second, false}, {30 * time.Second, true}} {
		ctx, cancel := context.WithTimeout(t.Context(), c.deadline)
		d, err := m.Take(r.WithContext(ctx))
		cancel()
		if err != nil || d.Allowed != c.want {
			t.Errorf("%s: %+v, %v", fmt.Sprint(c), d, err)
		}
	}
}

// A limiter of the user's own that ignores MaxDelay is corrected: what it admitted too late is
// denied, and given back, as is the place in flight, once, and not another's.
func TestALimiterThatIgnoresMaxDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &hook{check: func(c *algorithms.Check) { c.MaxDelay = 0 }}
		places := ratelimit.Rule{Name: "at-once", Key: keyfunc.IP, Limit: algorithms.MaxInFlight(5)}
		m := mustNew(t, ratelimit.Config{Limiter: l, Rules: []ratelimit.Rule{
			perHour("wide", 1000), places,
			{Name: "queue", Key: keyfunc.IP, Limit: algorithms.Limit{Rate: 1, Period: time.Second, Burst: 9, Algorithm: algorithms.LeakyBucket}},
		}})
		var release func()
		h := m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { release = ratelimit.Hold(r.Context()) }))
		for i, want := range []int{http.StatusOK, http.StatusTooManyRequests, http.StatusTooManyRequests} {
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			w := do(h, httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx))
			cancel()
			if w.Code != want || want == http.StatusTooManyRequests && w.Header().Get("Retry-After") != "1" {
				t.Errorf("request %d: %d %v", i, w.Code, w.Header())
			}
			if n := used(t, &l.Memory, places); n != 1 {
				t.Errorf("request %d: %d in flight, want the one that is held", i, n)
			}
		}
		if release(); used(t, &l.Memory, places) != 0 {
			t.Error("in flight after the release")
		}
		untouched(t, m, httptest.NewRequest(http.MethodGet, "/", nil), 1, 999)
	})
}
