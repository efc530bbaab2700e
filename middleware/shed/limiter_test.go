package shed_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	"github.com/seed75154129/ratelimit/middleware"
	"github.com/seed75154129/ratelimit/middleware/shed"
)

// behindLimiter returns a handler behind a limiter behind a Shedder. A User has one request an
// hour, others are not limited.
func behindLimiter(t *testing.T, s *shed.Shedder, h http.Handler) http.Handler {
	t.Helper()
	m, err := middleware.New(middleware.Config{DenialLogRate: -1, Logger: slog.New(slog.DiscardHandler), Rules: []middleware.Rule{{
		Name: "user", Limit: algorithms.PerHour(1), Key: keyfunc.Func(func(r *http.Request) (string, error) {
			if r.Header.Get("User") == "" {
				return "", keyfunc.ErrSkip
			}
			time.Sleep(time.Millisecond) // as Redis takes
			return r.Header.Get("User"), nil
		}),
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return s.Handler(m.Handler(h))
}

func abuser() *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("User", "abuser")
	return r
}

// Whatever flood of denials comes, the server does the work that it did without it, and the
// limit is what it was.
func TestAFloodOfDenials(t *testing.T) {
	for name, c := range map[string]struct {
		load, limit float64 // of the workers; by how much the limit may differ from the one without a flood
		flood       int     // for each request
	}{
		"idle": {load: .2, limit: 1, flood: 100}, "full": {load: 2, limit: 1.5, flood: 10},
	} {
		apart := time.Duration(float64(time.Second) / 160 / c.load)
		run := func(flood int) (served int, limit float64) {
			synctest.Test(t, func(t *testing.T) {
				s := adaptive()
				workers := make(chan struct{}, 8)
				h := behindLimiter(t, s, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
					workers <- struct{}{}
					time.Sleep(50 * time.Millisecond)
					<-workers
				}))
				h.ServeHTTP(httptest.NewRecorder(), abuser())
				var all sync.WaitGroup
				var mu sync.Mutex
				for range int(c.load * 10 * 160) { // in 10 s
					for range flood {
						all.Go(func() { h.ServeHTTP(httptest.NewRecorder(), abuser()) })
					}
					time.Sleep(apart / 2) // or the order of goroutines would decide who finds room
					all.Go(func() {
						w := httptest.NewRecorder()
						h.ServeHTTP(w, request(shed.Medium))
						mu.Lock()
						defer mu.Unlock()
						if w.Code == http.StatusOK {
							served++
						}
					})
					time.Sleep(apart / 2)
				}
				all.Wait()
				limit = metricsOf(s)["limit"]
			})
			return served, limit
		}
		t.Run(name, func(t *testing.T) {
			quiet, limit := run(0)
			served, after := run(c.flood)
			t.Logf("served %d, limit %v; without a flood %d, %v", served, after, quiet, limit)
			if float64(served) < .9*float64(quiet) || after > c.limit*limit || after*c.limit < limit {
				t.Error("the flood changes too much")
			}
		})
	}
}

// Outside the limiter, what is shed is charged nothing, but requests that are over their
// limit, or wait for a leaky_bucket, need places. Inside, it is the other way round.
func TestOutsideOrInsideTheLimiter(t *testing.T) {
	for _, c := range []struct {
		place                      string
		shed, over, behindAWaiting int // statuses
		charged                    int64
	}{
		{"outside", http.StatusServiceUnavailable, http.StatusServiceUnavailable, http.StatusServiceUnavailable, 0},
		{"inside", http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusOK, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, memory := fixed(1), new(algorithms.Memory)
			m, err := middleware.New(middleware.Config{Limiter: memory, DenialLogRate: -1, Logger: slog.New(slog.DiscardHandler), Rules: []middleware.Rule{
				{Name: "user", Match: []string{"/user"}, Key: keyfunc.Header("User"), Limit: algorithms.PerHour(1)},
				{Name: "pace", Match: []string{"/pace"}, Key: keyfunc.Everyone, Limit: algorithms.Limit{Rate: 1, Period: time.Minute, Burst: 2, Algorithm: algorithms.LeakyBucket}},
			}})
			if err != nil {
				t.Fatal(err)
			}
			work := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/long" {
					time.Sleep(time.Second)
				}
			})
			h := s.Handler(m.Handler(work))
			if c.place == "inside" {
				h = m.Handler(s.Handler(work))
			}
			send := func(path string, user ...string) int {
				w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil)
				r.Header["User"] = user
				h.ServeHTTP(w, r)
				return w.Code
			}
			send("/user", "over")
			go send("/long")
			synctest.Wait()
			if got := send("/user", "over"); got != c.over {
				t.Errorf("%s: over its limit: %d, want %d", c.place, got, c.over)
			}
			if got := send("/user", "new"); got != c.shed {
				t.Errorf("%s: shed: %d, want %d", c.place, got, c.shed)
			}
			d, err := memory.Peek(t.Context(), algorithms.Check{Rule: "user", Key: "new", Limit: algorithms.PerHour(1), Cost: 1})
			if charged := 1 - d.Results[0].Remaining; err != nil || charged != c.charged {
				t.Errorf("%s: what is shed is charged %d, want %d; %v", c.place, charged, c.charged, err)
			}
			time.Sleep(time.Minute)
			send("/pace")
			go send("/pace") // waits for a minute
			synctest.Wait()
			if got := send("/"); got != c.behindAWaiting {
				t.Errorf("%s: behind a request that waits for its turn: %d, want %d", c.place, got, c.behindAWaiting)
			}
			time.Sleep(time.Hour)
			wantMetrics(t, s, idle)
		})
	}
}
