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

	"github.com/seed75154129/ratelimit/algorithms"
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
		m := queueOf(t, 10, 0)
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
		wg.Wait()
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
