package middleware_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/redistest"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

var twoAtOnce = []ratelimit.Rule{
	{Name: "at-once", Key: keyfunc.IP, Limit: algorithms.MaxInFlight(2)},
	{Name: "rate", Key: keyfunc.IP, Limit: algorithms.PerHour(1000)},
}

// inFlightNow is how many requests from this machine a rule counts.
func inFlightNow(t *testing.T, m *ratelimit.Middleware, rule string) int64 {
	t.Helper()
	checks := checksOf(t, m, rule, "127.0.0.1")
	d, err := m.Limiter().Peek(t.Context(), checks...)
	if err != nil {
		t.Fatal(err)
	}
	return checks[0].Limit.Rate - d.Results[0].Remaining
}

// until polls for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 2000 {
		if ok() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("never: %s", what)
}

// However a handler ends, its request is in flight while it runs and not afterwards, costs
// what was added, and is told to Settled once.
func TestARequestIsInFlightWhileItsHandlerRuns(t *testing.T) {
	type end = func(w http.ResponseWriter, r *http.Request)
	outside := func(m *ratelimit.Middleware, h http.Handler) http.Handler { return m.Handler(h) }
	for _, c := range []struct {
		name string
		end  end
		wrap func(m *ratelimit.Middleware, h http.Handler) http.Handler
		h2   bool
		quit bool // the client leaves
	}{
		{name: "return", end: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "done") }},
		{name: "panic", end: func(http.ResponseWriter, *http.Request) { panic("on purpose") }},
		{name: "abort", end: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
		{name: "goexit", end: func(http.ResponseWriter, *http.Request) { runtime.Goexit() }},
		{name: "hijack and return", end: func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_ = conn.Close()
			}
		}},
		{name: "client gone", quit: true, end: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
		{name: "HTTP/2 reset", h2: true, quit: true, end: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
		{name: "HTTP/2", h2: true, end: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "done") }},
		{name: "a time-out outside", end: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			wrap: func(m *ratelimit.Middleware, h http.Handler) http.Handler {
				return http.TimeoutHandler(m.Handler(h), 20*time.Millisecond, "late")
			}},
		{name: "a time-out inside", end: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			wrap: func(m *ratelimit.Middleware, h http.Handler) http.Handler {
				return m.Handler(http.TimeoutHandler(h, 20*time.Millisecond, "late"))
			}},
		{name: "twice in a chain", end: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "done") },
			wrap: func(m *ratelimit.Middleware, h http.Handler) http.Handler {
				inner := mustNew(t, ratelimit.Config{Limiter: m.Limiter(), Rules: []ratelimit.Rule{{Name: "inner", Key: keyfunc.IP, Limit: algorithms.MaxInFlight(2)}}})
				return m.Handler(inner.Handler(h))
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var settled, units atomic.Int64
			m := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: twoAtOnce, Settled: func(_ *http.Request, d algorithms.Decision) {
				r, _ := d.Result("rate")
				units.Store(r.Charged)
				settled.Add(1)
			}})
			begun, goOn := make(chan bool, 1), make(chan bool)
			h := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if err := ratelimit.Add(r.Context(), "rate", 7); err != nil {
					t.Error("Add: stop")
				}
				begun <- true
				if !c.quit {
					<-goOn
				}
				c.end(w, r)
			}))
			if c.wrap == nil {
				c.wrap = outside
			}
			s := httptest.NewUnstartedServer(c.wrap(m, h))
			s.Config.ErrorLog = log.New(io.Discard, "", 0)
			if s.EnableHTTP2 = c.h2; c.h2 {
				s.StartTLS()
			} else {
				s.Start()
			}
			defer s.Close()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan bool)
			go func() {
				defer close(done)
				r, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
				if resp, err := s.Client().Do(r); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			}()
			<-begun
			if n := inFlightNow(t, m, "at-once"); n != 1 {
				t.Errorf("%d in flight while it runs, want 1", n)
			}
			if c.quit {
				cancel()
			} else {
				close(goOn)
			}
			<-done
			until(t, "none is in flight", func() bool { return inFlightNow(t, m, "at-once") == 0 })
			until(t, "it is settled", func() bool { return settled.Load() > 0 })
			if n := inFlightNow(t, m, "rate"); n != 7 || units.Load() != 7 || settled.Load() != 1 {
				t.Errorf("%d counted by the rate, and %d told to Settled, %d times; want 7, 7, once", n, units.Load(), settled.Load())
			}
			if n := metricOf(m, "ratelimit_in_flight", "at-once"); n != 0 {
				t.Errorf("ratelimit_in_flight is %v, want 0", n)
			}
		})
	}
}

// metricOf is a metric of a rule.
func metricOf(m *ratelimit.Middleware, name, rule string) float64 {
	for metric := range m.Metrics() {
		if metric.Name == name && slices.Contains(metric.Labels, rule) {
			return metric.Value
		}
	}
	return -1
}

// bubbled calls a handler behind a middleware, without a network.
func bubbled(t *testing.T, c ratelimit.Config, h http.HandlerFunc) (*ratelimit.Middleware, func() int) {
	t.Helper()
	m := mustNew(t, c)
	limited := m.Handler(h)
	return m, func() int { return do(limited, from("127.0.0.1", request("GET /"))).Code }
}

// At most N run at once, and those that are denied hold nothing.
func TestAtMostNRunAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		running, most := 0, 0
		run := func(n int) {
			mu.Lock()
			defer mu.Unlock()
			running += n
			most = max(most, running)
		}
		m, get := bubbled(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: twoAtOnce}, func(http.ResponseWriter, *http.Request) {
			run(1)
			time.Sleep(time.Second)
			run(-1)
		})
		codes := make(chan int, 5)
		for range 5 {
			go func() { codes <- get() }()
		}
		synctest.Wait()
		if n := metricOf(m, "ratelimit_in_flight", "at-once"); n != 2 {
			t.Errorf("ratelimit_in_flight is %v, want 2", n)
		}
		admitted := 0
		for range 5 {
			if code := <-codes; code == http.StatusOK {
				admitted++
			} else if code != http.StatusTooManyRequests {
				t.Errorf("status %d", code)
			}
		}
		if most != 2 || admitted != 2 || inFlightNow(t, m, "at-once") != 0 {
			t.Errorf("%d ran at once, %d admitted, %d still in flight; want 2, 2, 0", most, admitted, inFlightNow(t, m, "at-once"))
		}
	})
}

// Hold keeps the place after the handler has returned, and its release may be called
// several times; it frees no other's place.
func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var release func()
		var ctx context.Context
		m, get := bubbled(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: twoAtOnce}, func(_ http.ResponseWriter, r *http.Request) {
			ctx = r.Context() //nolint:fatcontext // of one request, for after its end
			release = ratelimit.Hold(ctx)
		})
		get()
		first := release
		get()
		if code := get(); code != http.StatusTooManyRequests {
			t.Errorf("status %d, want 429: two are held", code)
		}
		if err := ratelimit.Settle(ctx, "rate", 5); err != nil {
			t.Errorf("Settle while it is held: %v", err)
		}
		first()
		first()
		if n := inFlightNow(t, m, "at-once"); n != 1 {
			t.Errorf("%d in flight, want 1", n)
		}
		release()
		if n := inFlightNow(t, m, "at-once"); n != 0 {
			t.Errorf("%d in flight, want 0", n)
		}
		if err := ratelimit.Settle(ctx, "rate", 6); err == nil {
			t.Error("Settle after the release: no error")
		}
		ratelimit.Hold(ctx)() // it is over
		ratelimit.Hold(context.Background())()
		if n := inFlightNow(t, m, "at-once"); n != 0 {
			t.Errorf("%d in flight, want 0", n)
		}
	})
}

// A piped listens for connections in this process.
type piped chan net.Conn

func (p piped) Accept() (net.Conn, error) {
	if conn := <-p; conn != nil {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (p piped) Close() error   { return nil }
func (p piped) Addr() net.Addr { return &net.TCPAddr{} }

// A client that opens streams and does not read them is denied more of them. Others are
// not. A Reset is no help to it, and WriteTimeout frees its places.
func TestStreamsThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		user := keyfunc.Required(keyfunc.Header("User"), http.StatusUnauthorized)
		rules := []ratelimit.Rule{{Name: "streams", Key: user, Limit: algorithms.MaxInFlight(2)}, {Name: "rate", Key: user, Limit: algorithms.PerHour(100)}}
		m := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: rules})
		listener := make(piped)
		server := &http.Server{WriteTimeout: time.Minute, Handler: m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for err := error(nil); err == nil && r.URL.Path == "/endless"; {
				_, err = w.Write(make([]byte, 1024))
			}
		}))}
		go func() { _ = server.Serve(listener) }()
		open := func(path, user string) net.Conn {
			client, conn := net.Pipe()
			listener <- conn
			fmt.Fprintf(client, "GET %s HTTP/1.1\r\nHost: a\r\nUser: %s\r\nConnection: close\r\n\r\n", path, user)
			return client
		}
		want := func(user string, status int) {
			t.Helper()
			conn := open("/", user)
			defer conn.Close()
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			if response.StatusCode != status {
				t.Errorf("%s: status %d, want %d", user, response.StatusCode, status)
			}
			_, _ = io.Copy(io.Discard, response.Body)
		}
		for range 2 {
			defer open("/endless", "greedy").Close()
		}
		synctest.Wait()
		want("greedy", http.StatusTooManyRequests)
		want("other", http.StatusOK)
		checks := checksOf(t, m, "streams", "greedy")
		if d, err := m.Limiter().Peek(t.Context(), checks...); err != nil || d.Results[0].Remaining != 0 {
			t.Errorf("operators see %+v, %v", d, err)
		}
		if err := m.Limiter().Reset(t.Context(), checks...); err != nil {
			t.Fatal(err)
		}
		want("greedy", http.StatusTooManyRequests)
		time.Sleep(time.Minute)
		synctest.Wait()
		want("greedy", http.StatusOK)
		listener <- nil
	})
}

// A client that hangs up at once, again and again, runs no more handlers than the limit,
// and exhausts its rate, whose denials are made without Redis.
func TestRequestsThatHangUpAtOnce(t *testing.T) {
	var commands redistest.Recorder
	client := redis.NewClient(redistest.Start(t).Options())
	client.AddHook(&commands)
	defer client.Close()
	var running, most atomic.Int64
	rate := ratelimit.Rule{Name: "rate", Key: keyfunc.IP, Limit: fixedIn(20, time.Hour)}
	m := mustNew(t, ratelimit.Config{Limiter: guardOf(t, client), DenialLogRate: -1, Rules: []ratelimit.Rule{twoAtOnce[0], rate}})
	h := m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		n := running.Add(1)
		for before := most.Load(); n > before && !most.CompareAndSwap(before, n); before = most.Load() {
		}
		<-r.Context().Done()
		running.Add(-1)
	}))
	flood := func() {
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				ctx, hangUp := context.WithCancel(t.Context())
				r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
				r.RemoteAddr = "127.0.0.1:1"
				hangUp()
				h.ServeHTTP(httptest.NewRecorder(), r)
			})
		}
		all.Wait()
	}
	until(t, "the rate is exhausted", func() bool {
		flood()
		return inFlightNow(t, m, "rate") == 20
	})
	flood()
	until(t, "all are released", func() bool { return inFlightNow(t, m, "at-once") == 0 })
	commands.Take()
	for range 100 {
		flood()
	}
	if n := len(commands.Take()); n > 100 || most.Load() > 2 {
		t.Errorf("%d commands for 1000 requests, %d handlers at once; want few, and 2", n, most.Load())
	}
}

// Rules are removed, renamed, changed and in shadow while requests run: all
// are released.
func TestRulesChangeWhileRequestsAreInFlight(t *testing.T) {
	base := twoAtOnce[0]
	for name, change := range map[string]func(*ratelimit.Rule){
		"removed": func(r *ratelimit.Rule) { r.Name, r.Limit = "other", algorithms.PerHour(9) },
		"renamed": func(r *ratelimit.Rule) { r.Name = "other" },
		"raised":  func(r *ratelimit.Rule) { r.Limit = algorithms.MaxInFlight(7) },
		"tiers":   func(r *ratelimit.Rule) { r.Tiers = map[string][]algorithms.Limit{"pro": {algorithms.MaxInFlight(9)}} },
		"shadow":  func(r *ratelimit.Rule) { r.Shadow = true },
		"same":    func(*ratelimit.Rule) {},
	} {
		for _, shadow := range []bool{false, true} {
			t.Run(fmt.Sprint(name, shadow), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					memory := new(algorithms.Memory)
					rule := base
					rule.Shadow = shadow
					m, get := bubbled(t, ratelimit.Config{Limiter: memory, Rules: []ratelimit.Rule{rule}}, func(http.ResponseWriter, *http.Request) { time.Sleep(time.Second) })
					checks := checksOf(t, m, "at-once", "127.0.0.1")
					for range 3 {
						go get()
					}
					synctest.Wait()
					d, _ := memory.Peek(t.Context(), checks...)
					if d.Results[0].Remaining != 0 {
						t.Fatalf("%d left, want 0", d.Results[0].Remaining)
					}
					changed := base
					change(&changed)
					setRules(t, m, changed)
					time.Sleep(2 * time.Second)
					d, _ = memory.Peek(t.Context(), checks...)
					if d.Results[0].Remaining != 2 {
						t.Errorf("%d left, want 2", d.Results[0].Remaining)
					}
				})
			})
		}
	}
}

// Take holds until the context of its request ends, and asks for one that does.
func TestTakeHoldsUntilTheContextEnds(t *testing.T) {
	m := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: twoAtOnce})
	r := from("127.0.0.1", request("POST /"))
	if _, err := m.Take(r.WithContext(context.WithoutCancel(r.Context()))); err == nil || !strings.Contains(err.Error(), "use context.WithCancel") {
		t.Errorf("a context without an end: %v", err)
	}
	other, end := context.WithCancel(t.Context())
	defer end()
	if _, err := m.Take(r.WithContext(other)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	d, err := m.Take(r.WithContext(ctx))
	if err != nil || !d.Allowed || algorithms.Refund(ctx, m.Limiter(), d) != nil {
		t.Fatalf("%+v, %v", d, err)
	}
	if n := inFlightNow(t, m, "at-once"); n != 2 {
		t.Errorf("%d in flight, want 2: a Refund leaves the place", n)
	}
	cancel()
	until(t, "the other is in flight", func() bool { return inFlightNow(t, m, "at-once") < 2 })
	if n := inFlightNow(t, m, "at-once"); n != 1 {
		t.Errorf("%d in flight, want the other's", n)
	}
}

// A Hold that holds nothing is logged, in words that say which of the two mistakes it is.
func TestAHoldThatHoldsNothing(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	before := slog.Default()
	slog.SetDefault(logger)
	t.Cleanup(func() { slog.SetDefault(before) })
	ratelimit.ForgetHold()
	ratelimit.Hold(context.Background())()
	if !strings.Contains(log.String(), "this context is of no request") {
		t.Errorf("without a request: %s", log.String())
	}
	var late context.Context
	h := mustNew(t, ratelimit.Config{Logger: logger, Rules: []ratelimit.Rule{{Name: "r", Key: keyfunc.IP, Limit: algorithms.MaxInFlight(1)}}}).
		Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			ratelimit.Hold(r.Context())()
			late = r.Context() //nolint:fatcontext // of one request, for after its end
		}))
	serve(h, "GET /")
	if strings.Contains(log.String(), "had returned") {
		t.Errorf("in time: %s", log.String())
	}
	ratelimit.Hold(late)()
	if !strings.Contains(log.String(), "Hold: a handler had returned before") {
		t.Errorf("late: %s", log.String())
	}
}

// A client that a limit in flight denies is told the rule's RetryAfter, and what denied it,
// also if another rule, which had room, was asked as well.
func TestRetryAfterOfRequestsInFlight(t *testing.T) {
	for after, want := range map[time.Duration]string{0: "1", 15 * time.Second: "15", time.Hour: "3600"} {
		rules := []ratelimit.Rule{{Name: "exports", Key: keyfunc.IP, Limit: algorithms.MaxInFlight(1), RetryAfter: after}, perHour("rate", 60)}
		var inner http.Handler
		h := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: rules}).
			Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				w := serve(inner, "GET /")
				if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != want || w.Header().Get("X-RateLimit-Limit") != "1" {
					t.Errorf("%s: %d %v", after, w.Code, w.Header())
				}
			}))
		inner = h
		serve(h, "GET /")
	}
}
