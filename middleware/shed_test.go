package middleware_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/headers"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
	"github.com/seed75154129/ratelimit/middleware/shed"
)

// A slowBody ends after a while.
type slowBody struct {
	io.Reader
	after time.Duration
}

func (b *slowBody) Read(p []byte) (int, error) {
	time.Sleep(b.after)
	b.after = 0
	return b.Reader.Read(p)
}

func (b *slowBody) Close() error { return nil }

// A server with one place and room for one to wait: each request takes a second.
func TestShedder(t *testing.T) {
	key := func(name string) keyfunc.Key { return keyfunc.Required(keyfunc.Header(name), http.StatusUnauthorized) }
	rules := []ratelimit.Rule{
		{Name: "user", Match: []string{"/user/"}, Key: key("User"), Limit: algorithms.PerHour(3)},
		{Name: "queue", Match: []string{"/queue"}, Key: keyfunc.Everyone, Limit: algorithms.Limit{Rate: 1, Period: time.Minute, Burst: 9, Algorithm: algorithms.LeakyBucket}},
		{Name: "held", Match: []string{"/held"}, Key: key("User"), Limit: algorithms.MaxInFlight(1)},
		{Name: "body", Match: []string{"/body"}, Key: keyfunc.BodyJSON("user", 100), Limit: algorithms.PerHour(3)},
	}
	to := func(path, user string) *http.Request {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		if user != "" {
			r.Header.Set("User", user)
		}
		return r
	}
	drip := func() *http.Request { // of a client that sends its body for a minute
		r := to("/held", "a")
		r.Body = &slowBody{strings.NewReader("x"), time.Minute}
		return r
	}
	type result struct {
		*httptest.ResponseRecorder
		after time.Duration
	}
	for name, c := range map[string]struct {
		before []*http.Request // one after another
		slow   *http.Request   // takes the place; nil for one of no rule
		then   *http.Request
		code   int
		after  time.Duration
		takes  int64 // of the limiter since
	}{
		"no rule":         {then: to("/", ""), code: 503, after: 100 * time.Millisecond},
		"skipped":         {then: to("/healthz", ""), code: 200, after: time.Second},
		"a rule":          {then: to("/user/", "a"), code: 503, after: 100 * time.Millisecond},
		"a rule, refused": {then: to("/user/", ""), code: 503, after: 100 * time.Millisecond},
		"known to be denied": {
			before: []*http.Request{to("/user/", "a"), to("/user/", "a"), to("/user/", "a")},
			then:   to("/user/", "a"), code: 429, takes: 1,
		},
		"behind a wait for a turn": { // of the second in the queue
			before: []*http.Request{to("/queue", "")},
			slow:   to("/queue", ""), then: to("/user/", "a"), code: 200, after: time.Second + 100*time.Millisecond, takes: 1,
		},
		"behind a slow body of another client": {
			slow: drip(), then: to("/held", "b"), code: 200, after: time.Second + 100*time.Millisecond, takes: 1,
		},
		"behind a slow body of its own": {
			slow: drip(), then: to("/held", "a"), code: 429, takes: 1,
		},
		"behind a slow body": {
			slow: func() *http.Request {
				r := to("/body", "")
				r.Method, r.ContentLength, r.Body = http.MethodPost, 14, &slowBody{strings.NewReader(`{"user":"abc"}`), time.Minute}
				r.Header.Set("Content-Type", "application/json")
				return r
			}(),
			then: to("/user/", "a"), code: 200, after: time.Second + 100*time.Millisecond, takes: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter := &spy{Limiter: new(algorithms.Memory)}
				s := &shed.Shedder{Min: 1, Max: 1, Logger: slog.New(slog.DiscardHandler)}
				m := mustNew(t, ratelimit.Config{Limiter: limiter, Rules: rules, Skip: []string{"/healthz"}, Shedder: s})
				h := m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					if r.Body != nil {
						_, _ = io.ReadAll(r.Body)
					}
					time.Sleep(time.Second)
				}))
				send := func(r *http.Request) result {
					begun, w := time.Now(), httptest.NewRecorder()
					h.ServeHTTP(w, r.Clone(t.Context()))
					return result{w, time.Since(begun)}
				}
				for _, r := range c.before {
					if got := send(r); got.Code != 200 {
						t.Fatalf("before: %d", got.Code)
					}
				}
				slow := c.slow
				if slow == nil {
					slow = to("/", "")
				}
				var all sync.WaitGroup
				all.Go(func() {
					if got := send(slow); got.Code != 200 {
						t.Errorf("slow: %d %s", got.Code, got.Body)
					}
				})
				synctest.Wait()
				takes := limiter.takes.Load()
				got := send(c.then)
				if got.Code != c.code || got.after != c.after || limiter.takes.Load()-takes != c.takes {
					t.Errorf("%d after %v, %d takes; want %d after %v, %d", got.Code, got.after, limiter.takes.Load()-takes, c.code, c.after, c.takes)
				}
				if limits := got.Header().Get("X-RateLimit-Limit"); got.Code == 503 && (limits != "" || !strings.Contains(got.Body.String(), headers.TemporaryReducedCapacity)) {
					t.Errorf("%v %s", got.Header(), got.Body)
				}
				all.Wait()
				if load := s.Load(); load != 0 {
					t.Errorf("load %v", load)
				}
			})
		})
	}
}

// A flood of denials changes nothing for others: it takes no places while somebody waits,
// and the limit does not learn from it.
func TestAFloodOfDenialsTakesNoPlaces(t *testing.T) {
	run := func(flood bool) (served, shedCount int, limit float64) {
		synctest.Test(t, func(t *testing.T) {
			s := &shed.Shedder{Min: 4, Logger: slog.New(slog.DiscardHandler)}
			m := mustNew(t, ratelimit.Config{
				Limiter: new(algorithms.Memory), Shedder: s, DenialLogRate: -1,
				Rules: []ratelimit.Rule{{Name: "user", Key: keyfunc.Optional(keyfunc.Header("User")), Limit: algorithms.PerHour(1)}},
			})
			workers := make(chan struct{}, 4)
			h := m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				workers <- struct{}{}
				time.Sleep(50 * time.Millisecond)
				<-workers
			}))
			abuser := httptest.NewRequest(http.MethodGet, "/", nil)
			abuser.Header.Set("User", "abuser")
			h.ServeHTTP(httptest.NewRecorder(), abuser)
			var all sync.WaitGroup
			var mu sync.Mutex
			for range 20 * 160 { // 20 s of twice what the workers can serve
				if flood {
					for range 10 {
						all.Go(func() {
							w := httptest.NewRecorder()
							if h.ServeHTTP(w, abuser); w.Code != 429 {
								t.Errorf("the abuser: %d", w.Code)
							}
						})
					}
				}
				all.Go(func() {
					w := httptest.NewRecorder()
					h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
					mu.Lock()
					defer mu.Unlock()
					if w.Code == 200 {
						served++
					} else {
						shedCount++
					}
				})
				time.Sleep(time.Second / 160)
			}
			all.Wait()
			for metric := range s.Metrics() {
				if metric.Name == "ratelimit_shed_limit" {
					limit = metric.Value
				}
			}
		})
		return served, shedCount, limit
	}
	quiet, _, limit := run(false)
	served, shedCount, after := run(true)
	if float64(served) < 0.95*float64(quiet) || shedCount == 0 || after < limit/2 || after > 2*limit {
		t.Errorf("%d served and %d shed at a limit of %v; without the flood %d at %v", served, shedCount, after, quiet, limit)
	}
}

// Rules change while requests wait for places, run, and are shed: none keeps a place.
func TestRulesChangeUnderAShedder(t *testing.T) {
	s := &shed.Shedder{Min: 2, Max: 2, Wait: time.Millisecond, Logger: slog.New(slog.DiscardHandler)}
	sets := [][]ratelimit.Rule{
		{{Name: "held", Key: keyfunc.Everyone, Limit: algorithms.MaxInFlight(3)}},
		{{Name: "held", Key: keyfunc.Everyone, Limit: algorithms.MaxInFlight(1)}, {Name: "rate", Key: keyfunc.Everyone, Limit: algorithms.PerMinute(300)}},
		{{Name: "other", Match: []string{"/else"}, Key: keyfunc.Everyone, Limit: algorithms.PerMinute(300)}},
	}
	m := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: sets[0], Shedder: s, DenialLogRate: -1})
	h := m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { runtime.Gosched() }))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				w := httptest.NewRecorder()
				if h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil)); w.Code != 200 && w.Code != 429 && w.Code != 503 {
					t.Errorf("status %d", w.Code)
				}
			}
		})
	}
	for i := range 50 {
		if err := m.SetRules(sets[i%len(sets)]); err != nil {
			t.Error(err)
		}
	}
	all.Wait()
	if err := m.SetRules(sets[0]); err != nil {
		t.Fatal(err)
	}
	checks, err := m.Checks("held")
	if err != nil {
		t.Fatal(err)
	}
	if d, err := m.Limiter().Peek(t.Context(), checks...); err != nil || d.Results[0].Remaining != 3 || s.Load() != 0 {
		t.Errorf("%+v, %v, load %v; want 3 left, and no load", d, err, s.Load())
	}
}

func TestAShedderThatCannotBe(t *testing.T) {
	_, err := ratelimit.New(ratelimit.Config{Limiter: new(algorithms.Memory), Shedder: &shed.Shedder{Min: -1, Wait: 1}})
	if want := "middleware: shedder: shed: Min and Max"; err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "shed: Wait") {
		t.Errorf("%v, want %s", err, want)
	}
}

// A request that the Guard believes to be denied takes no place in a full Shedder. If
// Redis admits it, because its count was reset in another process, and it is shed, it has
// charged nothing.
func TestShedAfterAllHasChargedNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		redis, rule := new(store), perHour("user", 1, "/user")
		s := &shed.Shedder{Min: 1, Max: 1, Wait: -1, Logger: slog.New(slog.DiscardHandler)}
		m := mustNew(t, ratelimit.Config{Limiter: guard(t, redis, 1), Shedder: s, Rules: []ratelimit.Rule{
			rule, {Name: "held", Match: []string{"/user"}, Key: keyfunc.IP, Limit: algorithms.MaxInFlight(1)},
		}})
		slow := make(chan bool)
		h := m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				<-slow
			}
		}))
		times(2, h, "GET /user")
		go serve(h, "GET /slow")
		synctest.Wait()
		if w := serve(h, "GET /user"); w.Code != http.StatusTooManyRequests {
			t.Fatalf("status %d, want 429: it is not known here that the count was reset", w.Code)
		}
		if err := redis.Reset(t.Context(), algorithms.Check{Rule: "user", Key: "192.0.2.1", Limit: rule.Limit}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second) // the Guard asks again
		if w := serve(h, "GET /user"); w.Code != http.StatusServiceUnavailable || used(t, redis, rule) != 0 || inFlightNow(t, m, "held") != 0 {
			t.Errorf("status %d, %d used, %d in flight", w.Code, used(t, redis, rule), inFlightNow(t, m, "held"))
		}
		close(slow)
		synctest.Wait()
		if w := serve(h, "GET /user"); w.Code != http.StatusOK || used(t, redis, rule) != 1 {
			t.Errorf("with room: status %d, %d used", w.Code, used(t, redis, rule))
		}
	})
}
