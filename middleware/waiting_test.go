package middleware_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/redistest"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// queueOf is a leaky bucket of 5 a second, and beside it an ordinary rule.
func queueOf(t testing.TB, burst int64, maxWaiting int) *ratelimit.Middleware {
	t.Helper()
	return mustNew(t, ratelimit.Config{
		Limiter: new(algorithms.Memory),
		Rules: []ratelimit.Rule{
			{Name: "wide", Key: keyfunc.IP, Limit: algorithms.PerHour(1000)},
			{Name: "queue", Key: keyfunc.IP, Limit: algorithms.Limit{Rate: 5, Period: time.Second, Burst: burst, Algorithm: algorithms.LeakyBucket}},
		},
		MaxWaiting: maxWaiting,
	})
}

func TestRequestsWaitForTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, registry := queueOf(t, 10, 0), prometheus.NewRegistry()
		register(t, registry, m)
		begin := time.Now()
		var mu sync.Mutex
		served := map[time.Duration]int{}
		h := m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			served[time.Since(begin)]++
		}))
		var wg sync.WaitGroup
		denied := 0
		for range 15 {
			wg.Go(func() {
				if w := serve(h, "GET /"); w.Code == http.StatusTooManyRequests {
					mu.Lock()
					defer mu.Unlock()
					denied++
					if since := time.Since(begin); since != 0 || w.Header().Get("Retry-After") != "1" {
						t.Errorf("denied after %s, Retry-After %s", since, w.Header().Get("Retry-After"))
					}
				}
			})
		}
		synctest.Wait()
		wantSamples(t, registry, map[string]float64{"queue_waiting": 9, "queue_delay_seconds_count": 9,
			"queue_delay_seconds_bucket 0.1": 0, "queue_delay_seconds_bucket 0.25": 1, "queue_delay_seconds_bucket 0.5": 2, "queue_delay_seconds_bucket 1": 5,
			"decisions_total leaky_bucket allowed queue memory": 10, "decisions_total leaky_bucket denied queue memory": 5})
		wg.Wait()
		wantSamples(t, registry, map[string]float64{"queue_waiting": 0})
		if denied != 5 || len(served) != 10 {
			t.Errorf("%d denied, served at %v", denied, served)
		}
		for i := range 10 {
			if at := time.Duration(i) * 200 * time.Millisecond; served[at] != 1 {
				t.Errorf("%d served at %s", served[at], at)
			}
		}
	})
}

// untouched checks when the next request would have its turn, and what is left of wide.
func untouched(t *testing.T, m *ratelimit.Middleware, r *http.Request, seconds float64, wide int64) {
	t.Helper()
	d, err := m.Peek(r)
	if err != nil {
		t.Fatal(err)
	}
	if got := d.Delay().Seconds(); got != seconds || d.Results[0].Remaining != wide {
		t.Errorf("a turn in %gs and %d left of wide, want %gs and %d", got, d.Results[0].Remaining, seconds, wide)
	}
}

func TestWaitingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := queueOf(t, 100, 6)
		h := m.Handler(ok)
		crowd := func(address string, n int) map[int]int {
			codes := make(chan int, n)
			for range n {
				go func() {
					codes <- do(h, from(address, request("GET /"))).Code
				}()
				synctest.Wait() // until it is decided, it has a place, also if it need not wait
			}
			count := map[int]int{}
			for range n {
				select {
				case code := <-codes:
					count[code]++
				default: // waits
				}
			}
			return count
		}
		// Of each key one is served at once; of the first two, half of the places
		// wait; then there is no room, until they are gone.
		for range 2 {
			for i, want := range []string{"map[204:1 429:6]", "map[204:1 429:6]", "map[204:1 429:9]"} {
				if got := fmt.Sprint(crowd(fmt.Sprint("192.0.2.", i), 10)); got != want {
					t.Errorf("key %d: %s, want %s", i, got, want)
				}
			}
			time.Sleep(time.Minute)
		}
	})
}

func TestTheLongestDelayIsWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := func(name string, rate int64) ratelimit.Rule {
			return ratelimit.Rule{Name: name, Key: keyfunc.IP, Limit: algorithms.Limit{Rate: rate, Period: time.Minute, Burst: 9, Algorithm: algorithms.LeakyBucket}}
		}
		m := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{queue("fast", 60), queue("slow", 6)}})
		h := m.Handler(ok)
		begin := time.Now()
		for i := range 4 {
			serve(h, "GET /")
			if got, want := time.Since(begin), time.Duration(i)*10*time.Second; got != want {
				t.Errorf("request %d served after %s, want %s", i, got, want)
			}
		}
	})
}

func TestARequestThatIsNotServedIsNoSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := queueOf(t, 10, 0)
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		if _, err := m.Take(r); err != nil {
			t.Fatal(err)
		}
		// The server ends, say; the client is still there.
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		w := do(m.Handler(ok), r.WithContext(ctx))
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("status %d, %v", w.Code, w.Header())
		}
	})
}

// A limiter of the user's own may delay requests by whatever rule it likes.
func TestADelayByARuleThatIsNoQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &hook{result: func(r *algorithms.Result) error { r.Delay = 3 * time.Second; return nil }}
		h := mustNew(t, ratelimit.Config{Limiter: l, Rules: []ratelimit.Rule{perHour("r", 10)}, MaxWaiting: 1}).Handler(ok)
		begun := time.Now()
		go func() {
			time.Sleep(time.Second)
			if w := serve(h, "GET /"); w.Code != http.StatusTooManyRequests || time.Since(begun) != time.Second {
				t.Errorf("one more than may wait: %d after %s", w.Code, time.Since(begun))
			}
		}()
		if w := serve(h, "GET /"); w.Code != http.StatusNoContent || time.Since(begun) != 3*time.Second {
			t.Errorf("%d after %s", w.Code, time.Since(begun))
		}
	})
}

// Who was believed to be over, and is admitted after all, waits as others do.
func TestWhoIsNotOverAnyMoreWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reads atomic.Int64
		gate := algorithms.PerHour(10)
		s := new(store)
		h := mustNew(t, ratelimit.Config{Limiter: guard(t, s, 1), MaxWaiting: 2, Rules: []ratelimit.Rule{
			{Name: "body", Key: skipping{newBodyKey(&reads)}, Limit: gate}, // nothing is left to ask when the body is read
			{Name: "gate", Key: keyfunc.IP, Limit: gate},
			{Name: "queue", Key: keyfunc.IP, Limit: algorithms.Limit{Rate: 1, Period: time.Second, Burst: 9, Algorithm: algorithms.LeakyBucket}},
		}}).Handler(ok)
		for i := range 11 {
			if w := login(h, "alice"); (w.Code == http.StatusTooManyRequests) != (i == 10) {
				t.Fatalf("request %d: %d", i, w.Code)
			}
			time.Sleep(10 * time.Second)
		}
		before := reads.Load()
		if err := s.Memory.Reset(t.Context(), algorithms.Check{Rule: "gate", Key: "192.0.2.1", Limit: gate}); err != nil {
			t.Fatal(err)
		}
		codes := make(chan int, 3)
		for range 3 { // one after the other, so that who is served at once has left its place
			go func() { codes <- login(h, "alice").Code }()
			synctest.Wait()
		}
		// One is served at once, one has the place of its key, and one has none.
		if got := []int{<-codes, <-codes}; slices.Max(got) != http.StatusTooManyRequests || slices.Min(got) != http.StatusNoContent || len(codes) != 0 {
			t.Errorf("%v, and %d more", got, len(codes))
		}
		begun := time.Now()
		if code := <-codes; code != http.StatusNoContent || time.Since(begun) != time.Second {
			t.Errorf("%d after %s", code, time.Since(begun))
		}
		if reads.Load() == before {
			t.Error("the body was not read after all")
		}
	})
}

// A skipping key reads the body, and never applies.
type skipping struct{ bodyKey }

func (k skipping) Resolve(r *http.Request) (string, error) {
	_, _ = k.bodyKey.Resolve(r)
	return "", keyfunc.ErrSkip
}

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
			if n, shown := used(t, &l.Memory, places), metricOf(m, "ratelimit_in_flight", "at-once"); n != 1 || shown != 1 {
				t.Errorf("request %d: %d in flight, and %v by the metric; want the one that is held", i, n, shown)
			}
		}
		if release(); used(t, &l.Memory, places) != 0 {
			t.Error("in flight after the release")
		}
		untouched(t, m, httptest.NewRequest(http.MethodGet, "/", nil), 1, 999)
	})
}
