package middleware_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// A pacedServer serves one request a minute to everybody together, and limits
// each address to 10 requests an hour.
type pacedServer struct {
	*httptest.Server
	limit    *ratelimit.Middleware
	registry *prometheus.Registry
}

func startPaced(t *testing.T, config ratelimit.Config) *pacedServer {
	t.Helper()
	s := &pacedServer{registry: prometheus.NewRegistry()}
	config.Limiter = new(algorithms.Memory)
	config.Rules = []ratelimit.Rule{
		perHour("per-ip", 10),
		{Name: "pace", Key: keyfunc.Everyone, Limit: algorithms.Limit{Rate: 1, Period: time.Minute, Burst: 50, Algorithm: algorithms.LeakyBucket}},
	}
	s.limit = measured(t, s.registry, config)
	s.Server = httptest.NewUnstartedServer(s.limit.Handler(ok))
	ctx, end := context.WithCancel(context.Background())
	s.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(func() { end(); s.Close() }) // who still waits need not wait on
	return s
}

// waiting polls until so many requests wait.
func (s *pacedServer) waiting(t *testing.T, want float64) {
	t.Helper()
	begun := time.Now()
	for range time.Tick(time.Millisecond) {
		got := gather(t, s.registry)["queue_waiting"]
		if got == want {
			return
		}
		if time.Since(begun) > 10*time.Second {
			t.Fatalf("%v requests wait, want %v", got, want)
		}
	}
}

func (s *pacedServer) takeTheSlotOfNow(t *testing.T) {
	t.Helper()
	resp, err := s.Client().Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
}

// send opens a connection and sends text.
func (s *pacedServer) send(t *testing.T, text string) net.Conn {
	t.Helper()
	conn, err := tls.Dial("tcp", s.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	return conn
}

// A client that hangs up while it waits frees its place and its slot in the
// queue, and stays charged by the other rule: whoever sends and hangs up is
// limited like all others.
func TestHangingUpIsNoticed(t *testing.T) {
	post := func(header, body string) string { return "POST / HTTP/1.1\r\nHost: x\r\n" + header + "\r\n\r\n" + body }
	for name, request := range map[string]string{
		"without a body":         "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"with its body sent":     post("Content-Length: 5", "hello"),
		"before its body":        post("Content-Length: 5", ""),
		"in the middle of it":    post("Content-Length: 5", "he"),
		"with a body of 8 KiB":   post("Content-Length: 8192", strings.Repeat("x", 8192)),
		"which waits to be told": post("Content-Length: 5\r\nExpect: 100-continue", ""),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startPaced(t, ratelimit.Config{})
			s.takeTheSlotOfNow(t)
			for i := range 9 { // the next to hang up is always the last in the queue
				conn := s.send(t, request)
				s.waiting(t, 1)
				_ = conn.Close()
				s.waiting(t, 0)
				d, err := s.limit.Peek(httptest.NewRequest(http.MethodGet, "/", nil)) // from another address
				if err != nil || d.Delay() > time.Minute {
					t.Fatalf("after %d have left, the next one waits %s, %v", i+1, d.Delay(), err)
				}
			}
			resp, err := s.Client().Get(s.URL)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusTooManyRequests || !strings.Contains(string(body), `["per-ip"]`) {
				t.Errorf("after ten requests of ten: %d %s", resp.StatusCode, body)
			}
		})
	}
}

// A client that closes its own side of the connection looks like one that has left, and yet
// reads every response: each failure is a strike.
func TestHalfClosingAvoidsNoBan(t *testing.T) {
	rule := failures(100)
	rule.Ban = ratelimit.Ban{After: 3, For: time.Hour}
	server := httptest.NewServer(inMemory(t, rule).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
		w.WriteHeader(http.StatusUnauthorized)
	})))
	defer server.Close()
	for i, want := range []int{401, 401, 401, 429} {
		conn := raw(t, server, "POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\na=b")
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got, _ := statusOf(t, conn); got != want {
			t.Errorf("request %d: %d, want %d", i+1, got, want)
		}
	}
}

// Who is known to be over a limit, or is banned, is answered though the body does not come,
// and is not told to send it. Only a short body without Expect is waited for: by net/http,
// which reads it before it answers, unless the connection is to be closed.
func TestWhoIsDeniedNeedNotSendTheBody(t *testing.T) {
	guard := &failmode.Guard{Limiter: new(algorithms.Memory), Instances: 1}
	t.Cleanup(func() { _ = guard.Close() })
	for name, c := range map[string]struct {
		rule   ratelimit.Rule
		denies func(m *ratelimit.Middleware, h http.Handler)
	}{
		"over its limit": {perHour("over", 1), func(_ *ratelimit.Middleware, h http.Handler) {
			for range 2 {
				r := from("127.0.0.1", post("/", formType, "account=alice"))
				h.ServeHTTP(httptest.NewRecorder(), r)
			}
		}},
		"banned": {banning(100), func(m *ratelimit.Middleware, _ http.Handler) {
			if err := m.Ban(t.Context(), "login", time.Hour, "127.0.0.1"); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		byBody := ratelimit.Rule{Name: "account", Key: keyfunc.BodyForm("account", 1<<20), Limit: algorithms.PerHour(1000)}
		m := mustNew(t, ratelimit.Config{Limiter: guard, Rules: []ratelimit.Rule{byBody, c.rule}})
		server := httptest.NewServer(m.Handler(ok))
		t.Cleanup(server.Close)
		c.denies(m, server.Config.Handler)
		for _, header := range []string{
			"Content-Length: 13\r\nExpect: 100-continue", "Content-Length: 300000",
			"Content-Length: 13\r\nConnection: close", "Transfer-Encoding: chunked\r\nConnection: close",
		} {
			conn := raw(t, server, "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: "+formType+"\r\n"+header+"\r\n\r\n")
			if got, _ := statusOf(t, conn); got != http.StatusTooManyRequests {
				t.Errorf("%s, %q: %d", name, header, got)
			}
			_ = conn.Close()
		}
	}
}

// Over HTTP/2 a client that leaves is noticed whatever its body is.
func TestHangingUpIsNoticedOverHTTP2(t *testing.T) {
	s := startPaced(t, ratelimit.Config{})
	s.takeTheSlotOfNow(t)
	body, never := io.Pipe()
	defer never.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, body)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		resp, err := s.Client().Do(r)
		if err == nil {
			_ = resp.Body.Close()
		}
		done <- err
	}()
	s.waiting(t, 1)
	s.CloseClientConnections()
	s.waiting(t, 0)
	if err := <-done; err == nil {
		t.Error("there was a response")
	}
}

// Where hanging up cannot be noticed, one key has few places only.
func TestUnnoticedClientsHaveFewPlaces(t *testing.T) {
	for name, header := range map[string]string{
		"a long body":    "Content-Length: 8193",
		"unknown length": "Transfer-Encoding: chunked",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startPaced(t, ratelimit.Config{MaxWaiting: 32})
			s.takeTheSlotOfNow(t)
			// net/http would read the body before it answers, were it not to close.
			request := "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + header + "\r\n\r\n"
			for i := range 2 { // a sixteenth of 32
				_ = s.send(t, request).Close()
				s.waiting(t, float64(i+1))
			}
			conn := s.send(t, request)
			status := make([]byte, len("HTTP/1.1 429"))
			if _, err := io.ReadFull(conn, status); err != nil || string(status) != "HTTP/1.1 429" {
				t.Errorf("%s, %v", status, err)
			}
			// Others have a place.
			waits := s.send(t, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			s.waiting(t, 3)
			_ = waits.Close()
			s.waiting(t, 2)
		})
	}
}

// What is read while a request waits is there for its handler.
func TestTheBodyOfWhoWaitedIsWhole(t *testing.T) {
	m := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{{Name: "pace", Key: keyfunc.Everyone,
		Limit: algorithms.Limit{Rate: 100, Period: time.Second, Burst: 50, Algorithm: algorithms.LeakyBucket}}}})
	srv := httptest.NewServer(m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		fmt.Fprint(w, len(body), " ", err)
	})))
	t.Cleanup(srv.Close)
	for _, size := range []int{0, 1, 8191, 8192, 8193, 100_000} {
		resp, err := http.Post(srv.URL, "text/plain", strings.NewReader(strings.Repeat("x", size)))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if want := fmt.Sprint(size, " <nil>"); err != nil || string(got) != want {
			t.Errorf("%s, want %s, %v", got, want, err)
		}
	}
}

// Who would be served when the server does not write any more, or hardly, is
// denied at once.
func TestTheWriteTimeoutEndsAWait(t *testing.T) {
	m := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{{Name: "pace", Key: keyfunc.Everyone,
		Limit: algorithms.Limit{Rate: 1, Period: 10 * time.Second, Burst: 50, Algorithm: algorithms.LeakyBucket}}}})
	srv := httptest.NewUnstartedServer(m.Handler(ok))
	srv.Config.WriteTimeout = 10500 * time.Millisecond
	srv.Start()
	t.Cleanup(srv.Close)
	for i, want := range []int{http.StatusNoContent, http.StatusTooManyRequests, http.StatusTooManyRequests} {
		resp, err := http.Get(srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("request %d: %d, want %d", i, resp.StatusCode, want)
		}
	}
}

// A program may keep the decision that Observe got, and read it while the request goes on.
func TestTheDecisionThatObserveGotStays(t *testing.T) {
	for name, c := range map[string]struct {
		rule ratelimit.Rule
		end  int64 // charged in the end
	}{
		"a client leaves the queue": {ratelimit.Rule{Name: "r", Key: keyfunc.IP, Limit: algorithms.Limit{Rate: 1, Period: time.Minute, Burst: 9, Algorithm: algorithms.LeakyBucket}}, 0},
		"refunded by the status":    {ratelimit.Rule{Name: "r", Key: keyfunc.IP, Limit: algorithms.PerHour(9), ChargeOn: []int{http.StatusTeapot}}, 0},
		"settled":                   {perHour("r", 9), 5},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var observed, settled algorithms.Decision
				m := mustNew(t, ratelimit.Config{
					Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{c.rule},
					Observe: func(_ *http.Request, d algorithms.Decision) {
						observed = d
						go func() { _ = fmt.Sprint(d.Results[0].Charged) }() // for the race detector
					},
					Settled: func(_ *http.Request, d algorithms.Decision) { settled = d },
				})
				h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if c.end > 0 {
						_ = ratelimit.Settle(r.Context(), "r", c.end)
					}
					w.WriteHeader(http.StatusOK)
				}))
				serve(h, "GET /")
				ctx, leave := context.WithCancel(t.Context())
				defer time.AfterFunc(time.Second, leave).Stop()
				h.ServeHTTP(httptest.NewRecorder(), request("GET /").WithContext(ctx))
				if observed.Results[0].Charged != 1 || settled.Results[0].Charged != c.end {
					t.Errorf("observed %+v, settled %+v", observed, settled)
				}
			})
		})
	}
}
