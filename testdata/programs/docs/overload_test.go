package docs

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/middleware/shed"
)

// Clients that hold back the last byte of their bodies leave the limit of a Shedder in front of
// a proxy, as the page says, unless the body is read first. Either way, others are served.
func TestAProxyBehindAShedder(t *testing.T) {
	const limit, clients = 2, 8
	for name, c := range map[string]struct {
		in            func(*shed.Shedder, http.Handler) http.Handler
		before, after int64 // at work at once, when the bodies are complete
	}{
		"the proxy reads the body": {(*shed.Shedder).Handler, clients, clients},
		"whole reads the body":     {func(s *shed.Shedder, proxy http.Handler) http.Handler { return s.Handler(whole(proxy)) }, 0, limit},
	} {
		t.Run(name, func(t *testing.T) {
			var working atomic.Int64
			atWork := func(want int64) func() bool { return func() bool { return working.Load() == want } }
			over, end := context.WithCancel(t.Context())
			upstream := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { // reads no body
				if r.Method == http.MethodPost {
					working.Add(1)
					<-over.Done()
				}
			}))
			defer upstream.Close()
			defer end()
			to, err := url.Parse(upstream.URL)
			if err != nil {
				t.Fatal(err)
			}
			s := &shed.Shedder{Min: limit, Max: limit, Logger: slog.New(slog.DiscardHandler)}
			server := httptest.NewServer(c.in(s, httputil.NewSingleHostReverseProxy(to)))
			defer server.Close()
			var conns []net.Conn
			for n := range clients {
				conn, err := net.Dial("tcp", server.Listener.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				conns = append(conns, conn)
				fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\na")
				until(t, func() bool { return metric(s, "working")+metric(s, "parked") == float64(n+1) })
			}
			until(t, atWork(c.before))
			ok(t)(http.Get(server.URL))
			for _, conn := range conns {
				fmt.Fprint(conn, "b")
			}
			until(t, atWork(c.after))
			if working, parked := metric(s, "working"), metric(s, "parked"); c.after == limit && (working != limit || parked != clients-limit) {
				t.Errorf("%v at work, %v wait for a place", working, parked)
			}
			end()
			for _, conn := range conns {
				ok(t)(http.ReadResponse(bufio.NewReader(conn), nil))
			}
		})
	}
}

func ok(t *testing.T) func(*http.Response, error) {
	return func(response *http.Response, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if response.Body.Close(); response.StatusCode != http.StatusOK {
			t.Error(response.Status)
		}
	}
}

func metric(s *shed.Shedder, name string) float64 {
	for m := range s.Metrics() {
		if m.Name == "ratelimit_shed_"+name {
			return m.Value
		}
	}
	return -1
}

func until(t *testing.T, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not come")
		}
	}
}
