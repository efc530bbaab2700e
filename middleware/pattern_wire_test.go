package middleware_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/seed75154129/ratelimit/algorithms"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// Only OPTIONS * has no path. By any other method the asterisk is a path to the
// handler behind, whatever router that is, and a rule for all paths limits it.
func TestAnAsteriskEscapesNoRule(t *testing.T) {
	router := chi.NewRouter()
	router.Handle("/*", ok)
	mux := http.NewServeMux()
	mux.Handle("/", ok)
	for name, next := range map[string]http.Handler{"a handler": ok, "chi": router, "ServeMux": mux} {
		t.Run(name, func(t *testing.T) {
			m := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{perHour("all", 5, "/")}})
			srv := httptest.NewServer(m.Handler(next))
			defer srv.Close()
			for i := range 10 {
				method := []string{"GET", "POST"}[i%2]
				status, _ := statusOf(t, raw(t, srv, method+" * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
				if denied := status == http.StatusTooManyRequests; denied != (i >= 5) {
					t.Errorf("%s *, request %d: %d", method, i, status)
				}
			}
			// What net/http itself answers reaches no handler, and no limit.
			if status, _ := statusOf(t, raw(t, srv, "OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")); status != http.StatusOK {
				t.Errorf("OPTIONS *: %d", status)
			}
		})
	}
}

// raw sends text as it is, on a connection of its own, which answers within 10 s.
func raw(t *testing.T, srv *httptest.Server, text string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, text); err != nil || conn.SetReadDeadline(time.Now().Add(10*time.Second)) != nil {
		t.Fatal(err)
	}
	return conn
}

// statusOf reads the response on a connection: its status, and whether it is the last.
func statusOf(t *testing.T, conn net.Conn) (status int, last bool) {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode, resp.Close
}
