package shed_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/seed75154129/ratelimit/headers"
	"github.com/seed75154129/ratelimit/internal/overload"
	"github.com/seed75154129/ratelimit/middleware/shed"
)

// metricsOf are the values of a Shedder's metrics, by name and labels; of a histogram,
// how much was observed.
func metricsOf(s *shed.Shedder) map[string]float64 {
	all := make(map[string]float64)
	for m := range s.Metrics() {
		var name strings.Builder
		name.WriteString(strings.TrimPrefix(m.Name, "ratelimit_shed_"))
		for i := 1; i < len(m.Labels); i += 2 {
			name.WriteString(" " + m.Labels[i])
		}
		all[name.String()] = m.Value
		for _, n := range m.Counts {
			all[name.String()+" count"] += float64(n)
		}
	}
	return all
}

func wantMetrics(t interface {
	Helper()
	Errorf(string, ...any)
}, s *shed.Shedder, want map[string]float64) {
	t.Helper()
	got := metricsOf(s)
	for name, value := range want {
		if n, ok := got[name]; n != value || !ok {
			t.Errorf("%s is %v (there: %v), want %v", name, n, ok, value)
		}
	}
}

var idle = map[string]float64{"working": 0, "waiting": 0, "parked": 0}

// fixed is a Shedder with so many places, whose requests say how important they are.
func fixed(places int) *shed.Shedder {
	return &shed.Shedder{Min: places, Max: places, Priority: priorityOf, Logger: slog.New(slog.DiscardHandler)}
}

func adaptive() *shed.Shedder {
	s := fixed(8)
	s.Max = 0
	return s
}

func request(p shed.Priority) *http.Request {
	return (&http.Request{Method: http.MethodGet, Header: priorities[p]}).WithContext(context.Background())
}

// sleeps is a handler that takes so long.
func sleeps(d time.Duration) http.Handler {
	return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(d) })
}

// Of those who wait, the most important goes first, and then the first. Where the queue is
// full, the last of the least important gives way to one that is more important.
func TestTheLeastImportantGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fixed(2)
		var served []string
		var all sync.WaitGroup
		var mu sync.Mutex
		h := s.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			mu.Lock()
			served = append(served, r.URL.Path)
			mu.Unlock()
			if r.URL.Path == "/1" {
				time.Sleep(10 * time.Millisecond)
			}
			time.Sleep(10 * time.Millisecond)
		}))
		for i, p := range []shed.Priority{
			shed.Low, shed.Low, // at work
			shed.Low, shed.Medium, // wait
			shed.Low,      // is refused
			shed.High,     // displaces the Low that waits
			shed.Medium,   // is refused: another Medium came before
			shed.Critical, // displaces the Medium
			shed.Critical, // displaces the High
			shed.Critical, // is refused
			shed.Priority(100),
		} {
			w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, fmt.Sprintf("/%d", i), nil)
			r.Header = priorities[p]
			if p > shed.Critical {
				r.Header = priorities[shed.Critical]
			}
			all.Go(func() { h.ServeHTTP(w, r) })
			synctest.Wait()
		}
		if load := s.Load(); load != 2 {
			t.Errorf("load %v", load)
		}
		all.Wait()
		if fmt.Sprint(served) != "[/0 /1 /7 /8]" {
			t.Errorf("served %v", served)
		}
		wantMetrics(t, s, map[string]float64{
			"total low queue_full": 2, "total medium queue_full": 2, "total high queue_full": 1, "total critical queue_full": 2,
			"total low waited": 0, "limit": 2, "wait_seconds count": 5,
		})
		wantMetrics(t, s, idle)
		if load := s.Load(); load != 0 {
			t.Errorf("load %v", load)
		}
	})
}

func TestPrioritiesOutOfRangeAreTheNearest(t *testing.T) {
	for p, level := range map[shed.Priority]string{-128: "low", 127: "critical", 0: "medium"} {
		synctest.Test(t, func(t *testing.T) {
			s := &shed.Shedder{Min: 1, Max: 1, Wait: -1, Priority: func(*http.Request) shed.Priority { return p }, Logger: slog.New(slog.DiscardHandler)}
			if p == 0 {
				s.Priority = nil
			}
			h := s.Handler(sleeps(time.Second))
			go h.ServeHTTP(httptest.NewRecorder(), request(0))
			synctest.Wait()
			h.ServeHTTP(httptest.NewRecorder(), request(0))
			wantMetrics(t, s, map[string]float64{"total " + level + " waited": 1})
			time.Sleep(time.Second)
		})
	}
}

func TestWhatIsShedIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := &shed.Shedder{Min: 1, Max: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))}
		h := s.Handler(sleeps(time.Hour))
		go h.ServeHTTP(httptest.NewRecorder(), request(0))
		synctest.Wait()
		waits := make(map[string]bool)
		for range 110 {
			begun, w := time.Now(), httptest.NewRecorder()
			h.ServeHTTP(w, request(0))
			got := w.Header()
			if time.Since(begun) != 100*time.Millisecond || w.Code != 503 || got.Get("Cache-Control") != "no-store" ||
				!strings.Contains(w.Body.String(), headers.TemporaryReducedCapacity) || strings.Contains(fmt.Sprint(got), "Ratelimit") {
				t.Fatalf("after %v: %d %v %s", time.Since(begun), w.Code, got, w.Body)
			}
			waits[got.Get("Retry-After")] = true
		}
		if len(waits) != 3 || !waits["1"] || !waits["2"] || !waits["3"] {
			t.Errorf("Retry-After %v", waits)
		}
		s.Overloaded = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
		w := httptest.NewRecorder()
		h.ServeHTTP(w, request(0))
		if w.Code != http.StatusTeapot || w.Header().Get("Retry-After") == "" || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%d %v", w.Code, w.Header())
		}
		if lines := strings.Count(log.String(), "\n"); lines != 2 { // in 11 s
			t.Errorf("%d lines: %s", lines, &log)
		}
		time.Sleep(time.Hour)
	})
}

func TestMistakes(t *testing.T) {
	for want, do := range map[string]func(){
		"shed: Handler: the next handler is nil":                                                                      func() { new(shed.Shedder).Handler(nil) },
		"shed: Min and Max must not be negative, nor Min above Max; got 9 and 8":                                      func() { (&shed.Shedder{Min: 9, Max: 8}).Handler(sleeps(0)) },
		"shed: Wait 100ns is below 1ms; a number without a unit is in nanoseconds: write 10*time.Second, in text 10s": func() { (&shed.Shedder{Wait: 100}).Handler(sleeps(0)) },
		"shed: Min and Max must not be negative, nor Min above Max; got 0 and -1":                                     func() { (&shed.Shedder{Max: -1}).Handler(sleeps(0)) },
	} {
		func() {
			defer func() {
				if got := recover(); got != want {
					t.Errorf("got %v, want %s", got, want)
				}
			}()
			do()
		}()
	}
}

// The zero value is ready, whatever the processors.
func TestDefaults(t *testing.T) {
	for s, want := range map[*shed.Shedder]float64{
		{}: max(20, 2*float64(runtime.GOMAXPROCS(0))), {Max: 5}: 5, {Min: 2000}: 2000, {Min: 4}: 20, {Min: 4, Max: 4}: 4,
	} {
		wantMetrics(t, s, map[string]float64{"limit": want})
	}
}

// A Shedder that a request meets again, in the same chain, has let it in already; another
// one has not.
func TestARequestTakesOnePlace(t *testing.T) {
	s, other := fixed(1), fixed(1)
	var inside http.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		wantMetrics(t, s, map[string]float64{"working": 1})
		wantMetrics(t, other, map[string]float64{"working": 1})
	})
	w := httptest.NewRecorder()
	s.Handler(other.Handler(s.Handler(inside))).ServeHTTP(w, request(0))
	if w.Code != 200 {
		t.Error(w.Code)
	}
	wantMetrics(t, s, idle)
}

func until(t *testing.T, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not come")
		}
	}
}

// A Priority that panics has taken no place.
func TestAPriorityThatPanics(t *testing.T) {
	s := fixed(1)
	s.Priority = func(*http.Request) shed.Priority { panic(http.ErrAbortHandler) }
	func() {
		defer func() { _ = recover() }()
		s.Handler(sleeps(0)).ServeHTTP(httptest.NewRecorder(), request(0))
	}()
	wantMetrics(t, s, idle)
}

// What handlers of a real server do with a connection works as without a Shedder, and
// gives the place back: a stream and a hijacked connection when they begin.
func TestConnectionsOfARealServer(t *testing.T) {
	s := fixed(3)
	inside := make(chan float64, 1) // at work, when the handler has begun
	server := httptest.NewUnstartedServer(nil)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	server.Config.Handler = s.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		if err := errors.Join(control.SetReadDeadline(time.Now().Add(time.Minute)), control.SetWriteDeadline(time.Now().Add(time.Minute)), control.EnableFullDuplex()); err != nil {
			t.Error(err)
		}
		switch r.URL.Path {
		case "/flush":
			w.(http.Flusher).Flush()
		case "/control":
			if err := control.Flush(); err != nil {
				t.Error(err)
			}
		case "/hijack":
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
		case "/copy":
			if _, err := w.(io.ReaderFrom).ReadFrom(r.Body); err != nil {
				t.Error(err)
			}
		case "/panic":
			defer func() { inside <- 1 }()
			panic(http.ErrAbortHandler)
		case "/goexit":
			defer func() { inside <- 1 }()
			runtime.Goexit()
		case "/text":
			_, _ = io.WriteString(w, "abc")
		}
		inside <- metricsOf(s)["working"]
	}))
	server.Start()
	defer server.Close()
	for path, want := range map[string]struct {
		working float64
		body    string
	}{
		"/flush": {0, ""}, "/control": {0, ""}, "/hijack": {0, ""}, "/copy": {1, "abc"}, "/text": {1, "abc"}, "/panic": {1, "EOF"}, "/goexit": {1, "EOF"},
	} {
		r, _ := http.NewRequest(http.MethodPost, server.URL+path, strings.NewReader("abc"))
		r.Close = true // a connection that a handler has ended must not meet the next request
		response, err := http.DefaultClient.Do(r)
		body := []byte("EOF")
		if err == nil {
			body, _ = io.ReadAll(response.Body)
			response.Body.Close()
		}
		if n := <-inside; n != want.working || string(body) != want.body {
			t.Errorf("%s: %v at work, %q; want %v", path, n, body, want)
		}
		until(t, func() bool { return metricsOf(s)["working"] == 0 })
	}
}

// Only the writes of a copy wait for the client.
func TestACopyThatReadsKeepsItsPlace(t *testing.T) {
	for name, under := range map[string]http.ResponseWriter{
		"HTTP/1": http1{httptest.NewRecorder()},
		"HTTP/2": httptest.NewRecorder(),
		"HTTP/2 in a wrapper that is an io.ReaderFrom": readerFrom{httptest.NewRecorder()},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := fixed(1)
			other := httptest.NewRecorder()
			s.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.Copy(w, io.MultiReader(strings.NewReader(strings.Repeat("x", 1000)), readerFunc(func([]byte) (int, error) {
					s.Handler(sleeps(0)).ServeHTTP(other, request(0))
					return 0, io.EOF
				})))
			})).ServeHTTP(under, request(0))
			if other.Code != http.StatusServiceUnavailable {
				t.Errorf("%s: another request is answered %d", name, other.Code)
			}
			wantMetrics(t, s, idle)
		})
	}
}

// A readerFrom copies whatever the writer underneath can do, as the wrappers of other layers do.
type readerFrom struct{ http.ResponseWriter }

func (r readerFrom) Unwrap() http.ResponseWriter { return r.ResponseWriter }
func (r readerFrom) ReadFrom(src io.Reader) (n int64, err error) {
	return io.Copy(r.ResponseWriter, src)
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// A client that never reads keeps a handler, not its place.
func TestAClientThatNeverReads(t *testing.T) {
	s := fixed(1)
	s.Wait = time.Minute
	writing := make(chan struct{})
	server := httptest.NewServer(s.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/large" {
			close(writing)
			for piece := make([]byte, 1<<20); ; {
				if _, err := w.Write(piece); err != nil {
					return
				}
			}
		}
	})))
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
	<-writing
	until(t, func() bool { // it is looked for only when somebody needs the place
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
		response, err := http.DefaultClient.Do(r)
		if err == nil {
			response.Body.Close()
		}
		return err == nil && response.StatusCode == http.StatusOK
	})
	wantMetrics(t, s, map[string]float64{"parked": 1})
	conn.Close()
	until(t, func() bool { return metricsOf(s)["parked"] == 0 })
}

// A handler whose place was needed while it waited for its client goes on in its turn,
// before others of its priority. After 30 s its Read fails: others may need a lock that it
// holds.
func TestWhoWasParkedComesBack(t *testing.T) {
	for _, c := range []struct {
		others shed.Priority
		after  time.Duration
		fails  bool
	}{
		{shed.Low, 11500 * time.Millisecond, false}, // when the one at work is done
		{shed.High, 40200 * time.Millisecond, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := fixed(1)
			s.Wait = time.Hour
			var back time.Duration
			begin := time.Now()
			reads := func(r *http.Request) *http.Request { r.Body = overload.SlowBody(10200 * time.Millisecond); return r }
			h := s.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if r.Body != nil {
					_, err := r.Body.Read(nil)
					if back = time.Since(begin); (err != io.EOF) != c.fails {
						t.Errorf("%v: %v", c.others, err)
					}
					return
				}
				time.Sleep(1500 * time.Millisecond)
			}))
			var all sync.WaitGroup
			all.Go(func() { h.ServeHTTP(httptest.NewRecorder(), reads(request(shed.Low))) })
			for range 60 { // of 1.5 s, so there is always one at work and one that waits
				time.Sleep(time.Second)
				all.Go(func() { h.ServeHTTP(httptest.NewRecorder(), request(c.others)) })
			}
			all.Wait()
			if back != c.after {
				t.Errorf("%v: back after %v, want %v", c.others, back, c.after)
			}
			wantMetrics(t, s, idle)
		})
	}
}

// Clients whose bodies are complete, and who may hang up then, do not work beyond the limit,
// however many they are and however long they wait for their turn.
func TestWhoComesBackKeepsTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fixed(2)
		var working, most atomic.Int64
		h := s.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if _, err := r.Body.Read(nil); err != io.EOF {
				return
			}
			most.Store(max(most.Load(), working.Add(1)))
			time.Sleep(time.Second)
			working.Add(-1)
		}))
		var all sync.WaitGroup
		for range 200 {
			ctx, hangUp := context.WithCancel(t.Context())
			r := request(shed.Low).WithContext(ctx)
			r.Body = overload.SlowBody(10 * time.Second)
			all.Go(func() { h.ServeHTTP(httptest.NewRecorder(), r) })
			time.AfterFunc(10*time.Second+time.Millisecond, hangUp)
			time.Sleep(60 * time.Millisecond)
		}
		all.Wait()
		if most.Load() != 2 {
			t.Errorf("%d at work at once, want 2", most.Load())
		}
		wantMetrics(t, s, idle)
	})
}

// However many clients are slow, or send a byte again and again, however soon the next one
// comes, they hold no places. If the server would let them be slow for ever, the log says so.
func TestSlowBodiesHoldNoPlaces(t *testing.T) {
	slow := func() io.ReadCloser { return overload.SlowBody(time.Hour) }
	dripping := func(every time.Duration) func() io.ReadCloser {
		return func() io.ReadCloser { return &drips{int(time.Minute / every), every} }
	}
	for name, c := range map[string]struct {
		clients int
		body    func() io.ReadCloser
		timeout time.Duration // the server's ReadTimeout
		served  int           // of 100 others, at least
		lines   int           // about the ReadTimeout
	}{
		"slow":               {12_000, slow, time.Minute, 100, 0},
		"slow, for ever":     {12_000, slow, 0, 100, 1},
		"a byte each 45 ms":  {20, dripping(45 * time.Millisecond), time.Minute, 95, 0},
		"a byte each 60 ms":  {100, dripping(60 * time.Millisecond), time.Minute, 95, 0},
		"a byte each second": {400, dripping(time.Second), time.Minute, 95, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				s := fixed(16)
				s.Logger = slog.New(slog.NewTextHandler(&log, nil))
				ctx := context.WithValue(t.Context(), http.ServerContextKey, &http.Server{ReadTimeout: c.timeout})
				h := s.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					if r.Body != nil {
						_, _ = io.ReadAll(r.Body)
					}
					time.Sleep(10 * time.Millisecond)
				}))
				var all sync.WaitGroup
				for range c.clients {
					r := request(shed.Low).WithContext(ctx)
					r.Body = c.body()
					all.Go(func() { h.ServeHTTP(httptest.NewRecorder(), r) })
					time.Sleep(5 * time.Millisecond)
				}
				served := 0
				for range 100 {
					w := httptest.NewRecorder()
					if h.ServeHTTP(w, request(shed.Low).WithContext(ctx)); w.Code == http.StatusOK {
						served++
					}
					time.Sleep(100 * time.Millisecond)
				}
				got := metricsOf(s)
				if refused := got["total low waited"] + got["total low queue_full"]; served < c.served || c.served == 100 && (refused > 0 || got["parked"] < float64(c.clients-16)) {
					t.Errorf("%d of 100 others are served; %v", served, got)
				}
				all.Wait()
				wantMetrics(t, s, idle)
				if n := strings.Count(log.String(), "ReadTimeout"); n != c.lines {
					t.Errorf("%d lines about the ReadTimeout %v, want %d: %s", n, c.timeout, c.lines, &log)
				}
			})
		})
	}
}

// A drips body is so many bytes, one at a time.
type drips struct {
	left  int
	every time.Duration
}

func (d *drips) Read([]byte) (int, error) {
	if d.left == 0 {
		return 0, io.EOF
	}
	d.left--
	time.Sleep(d.every)
	return 1, nil
}

func (*drips) Close() error { return nil }

// The limit does not learn from what did not do the work: requests that somebody refuses
// at once, streams after their beginning, panics.
func TestWhatTheLimitDoesNotLearnFrom(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"4xx at once": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) },
		"5xx at once": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
		"429": func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(5 * time.Millisecond)
			w.WriteHeader(http.StatusTooManyRequests)
		},
		"panic": func(http.ResponseWriter, *http.Request) { time.Sleep(time.Millisecond); panic(http.ErrAbortHandler) },
		"hijack": func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(time.Millisecond)
			_, _, _ = w.(http.Hijacker).Hijack()
			time.Sleep(time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &shed.Shedder{Min: 8}
				var mu sync.Mutex
				least := math.Inf(1)
				normal, odd := s.Handler(sleeps(50*time.Millisecond)), s.Handler(handler)
				var all sync.WaitGroup
				for range 1000 { // in 10 s
					all.Go(func() {
						defer func() { _ = recover() }()
						odd.ServeHTTP(http1{httptest.NewRecorder()}, request(0))
					})
					time.Sleep(10 * time.Millisecond)
				}
				all.Wait()
				for range 30 { // more at once than may be
					all.Go(func() {
						for range 400 {
							normal.ServeHTTP(httptest.NewRecorder(), request(0))
							mu.Lock()
							least = min(least, metricsOf(s)["limit"])
							mu.Unlock()
						}
					})
				}
				all.Wait()
				if least < 20 {
					t.Errorf("the limit falls to %v", least)
				}
				wantMetrics(t, s, idle)
			})
		})
	}
}

// An http1 has what a ResponseWriter of HTTP/1 has.
type http1 struct{ *httptest.ResponseRecorder }

func (http1) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, nil }

func (w http1) ReadFrom(src io.Reader) (int64, error) { return io.Copy(w.ResponseRecorder, src) }

// Whatever handlers and clients do, no place is lost and none is given twice.
func TestNoPlaceIsLost(test *testing.T) {
	rapid.Check(test, func(t *rapid.T) {
		type step struct {
			priority                 shed.Priority
			act                      string
			pause, works, gives, adv time.Duration
		}
		ms := func(most int, label string) time.Duration {
			return time.Duration(rapid.IntRange(0, most).Draw(t, label)) * 10 * time.Millisecond
		}
		places, shadow := rapid.IntRange(1, 4).Draw(t, "places"), rapid.IntRange(0, 3).Draw(t, "shadow") == 0
		var steps []step
		for range rapid.IntRange(1, 60).Draw(t, "n") {
			steps = append(steps, step{
				shed.Priority(rapid.IntRange(-1, 2).Draw(t, "priority")),
				rapid.SampledFrom([]string{"", "read", "write", "flush", "hijack", "panic", "goexit", "both", "late read", "hang up", "timeout"}).Draw(t, "act"),
				ms(30, "pause"), ms(10, "works"), ms(20, "gives up"), ms(4, "advance"),
			})
		}
		var problem string
		synctest.Test(test, func(*testing.T) {
			s := fixed(places)
			s.Shadow = shadow
			working, most := 0, 0
			var mu sync.Mutex
			counts := func(n int) {
				mu.Lock()
				working += n
				most = max(most, working)
				mu.Unlock()
			}
			var all sync.WaitGroup
			for _, st := range steps {
				var inner http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					n := 1
					if st.act == "timeout" { // which runs on without a place
						n = 0
					}
					counts(n)
					out := func() { counts(-n); n = 0 }
					defer func() { out() }()
					time.Sleep(st.works)
					switch st.act {
					case "read", "hang up":
						counts(-1) // may be parked
						_, _ = r.Body.Read(nil)
						counts(1)
					case "timeout":
						_, _ = r.Body.Read(nil)
					case "write":
						counts(-1)
						_, _ = w.Write(nil)
						counts(1)
					case "both":
						out()
						all.Go(func() { _, _ = r.Body.Read(nil) })
						_, _ = w.Write(nil)
					case "late read":
						out() // another goroutine's read parks the handler, too
						all.Go(func() { time.Sleep(st.pause); _, _ = r.Body.Read(nil) })
					case "flush":
						out()
						w.(http.Flusher).Flush()
						w.(http.Flusher).Flush()
						time.Sleep(st.pause)
					case "hijack":
						out()
						_, _, _ = w.(http.Hijacker).Hijack()
						time.Sleep(st.pause)
					case "panic":
						panic(http.ErrAbortHandler)
					case "goexit":
						runtime.Goexit()
					}
					time.Sleep(st.works)
				})
				if st.act == "timeout" {
					inner = http.TimeoutHandler(inner, st.gives, "")
				}
				h := s.Handler(inner)
				all.Go(func() {
					defer func() { _ = recover() }()
					ctx, cancel := context.WithCancel(context.Background())
					defer cancel()
					if st.act == "hang up" {
						time.AfterFunc(st.gives, cancel)
					}
					r := request(st.priority).WithContext(ctx)
					r.Body = overload.SlowBody(st.pause)
					h.ServeHTTP(hijacking{&overload.Response{Slow: st.pause, Flushed: func() {}}}, r)
				})
				time.Sleep(st.adv)
			}
			all.Wait()
			for range 3 { // in shadow, time passes with requests
				time.Sleep(time.Hour)
				s.Handler(sleeps(0)).ServeHTTP(new(overload.Response), request(0))
			}
			got := metricsOf(s)
			for name := range idle {
				if name == "working" && shadow {
					continue // the last request's is freed by the next
				}
				if got[name] != 0 {
					problem = fmt.Sprintf("%s: %v", name, got[name])
				}
			}
			mu.Lock() // handlers run on after their timeout
			defer mu.Unlock()
			if !shadow && most > places {
				problem = fmt.Sprintf("%d at work at once", most)
			}
		})
		if problem != "" {
			t.Fatal(problem)
		}
	})
}

type hijacking struct{ *overload.Response }

func (hijacking) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, nil }

// A request that is let in costs three allocations: its context, the copy of the request,
// and its place.
func TestAllocations(t *testing.T) {
	h := fixed(1).Handler(sleeps(0))
	var w http.ResponseWriter = http1{httptest.NewRecorder()}
	r := request(0)
	if n := testing.AllocsPerRun(100, func() { h.ServeHTTP(w, r) }); n > 3 {
		t.Errorf("%v allocations", n)
	}
}

// go test ./middleware/shed -run '^$' -bench .
func BenchmarkShedder(b *testing.B) {
	b.Run("not full", func(b *testing.B) {
		h := fixed(1).Handler(sleeps(0))
		var w http.ResponseWriter = http1{httptest.NewRecorder()}
		r := request(0)
		b.ReportAllocs()
		for b.Loop() {
			h.ServeHTTP(w, r)
		}
	})
	b.Run("full", func(b *testing.B) { // the queue too
		s := fixed(1)
		s.Wait, s.Overloaded = time.Hour, sleeps(0)
		free := make(chan struct{})
		h := s.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-free }))
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() { h.ServeHTTP(httptest.NewRecorder(), request(shed.Critical)) })
		}
		for s.Load() < 2 {
			runtime.Gosched()
		}
		w, r := httptest.NewRecorder(), request(0)
		b.ReportAllocs()
		for b.Loop() {
			h.ServeHTTP(w, r)
		}
		close(free)
		all.Wait()
	})
}

// At full the load is 1, also when the limit has a fraction. In shadow, it falls to 0 when
// nothing runs, though no request comes any more.
func TestLoadWhenFullAndAfterACrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		work := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(50 * time.Millisecond) })
		crowd := func(h http.Handler, n int) {
			for range n {
				go h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
			}
			synctest.Wait()
		}
		s := adaptive()
		h := s.Handler(work)
		for range 200 { // the limit grows
			places := metricsOf(s)["limit"]
			crowd(h, int(places))
			if load := s.Load(); load != 1 {
				t.Errorf("load %v, %v of %v places are taken", load, metricsOf(s)["working"], places)
			}
			time.Sleep(60 * time.Millisecond)
		}

		shadow := &shed.Shedder{Min: 2, Max: 2, Shadow: true, Logger: slog.New(slog.DiscardHandler)}
		crowd(shadow.Handler(work), 20)
		time.Sleep(3 * time.Second)
		if working := metricsOf(shadow)["working"]; shadow.Load() != 0 || working != 0 {
			t.Errorf("load %v, %v at work", shadow.Load(), working)
		}
	})
}
