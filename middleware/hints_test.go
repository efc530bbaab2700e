package middleware_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// Behind a load balancer every request may come from another of its addresses.
func TestAProxyIsHintedAtOnce(t *testing.T) {
	var log bytes.Buffer
	limit := algorithms.PerHour(1_000_000)
	m := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Rules: []ratelimit.Rule{{Name: "a", Key: keyfunc.IP, Limit: limit}, {Name: "b", Key: keyfunc.IP, Limit: limit}}})
	h := m.Handler(ok)
	for i := range 200 {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = fmt.Sprintf("10.0.0.%d:1", i)
		r.Header.Set("X-Forwarded-For", "203.0.113.7")
		if i >= 100 {
			r.Header.Set("Forwarded", "for=203.0.113.7")
		}
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	if strings.Contains(log.String(), "10.0.0.") { // whoever it is wants to be trusted
		t.Errorf("a sender is named:\n%s", log.String())
	}
	if got := strings.Count(log.String(), "that is not trusted"); got != 4 { // of two rules and two headers
		t.Errorf("%d lines:\n%s", got, log.String())
	}
}

// An h2c handler behind the limiter would take over connections, whose requests the
// limiter does not see. So their beginning is refused, even if no rule matches it. What
// net/http itself serves is limited.
func TestAnH2CHandlerBehindTheLimiter(t *testing.T) {
	var log bytes.Buffer
	var served atomic.Int64
	m := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Skip: []string{"/skipped"}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Rules: []ratelimit.Rule{{Name: "login", Match: []string{"/login"}, Key: keyfunc.IP, Limit: algorithms.Limit{Rate: 2, Period: time.Hour, Algorithm: algorithms.SlidingLog}}}})
	start := func(http2 bool) *httptest.Server {
		server := httptest.NewUnstartedServer(m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) })))
		server.Config.Protocols = new(http.Protocols)
		server.Config.Protocols.SetHTTP1(true)
		server.Config.Protocols.SetUnencryptedHTTP2(http2)
		server.Start()
		t.Cleanup(server.Close)
		return server
	}

	without := start(false)
	for range 2 {
		conn := raw(t, without, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
		status, last := statusOf(t, conn)
		if status != http.StatusBadRequest || !last {
			t.Errorf("status %d, closed %t; want 400 and the connection's end", status, last)
		}
		conn.Close()
	}
	without.Close() // waits for the handlers
	if got := log.String(); served.Load() != 0 || strings.Count(got, "\n") != 1 || !strings.Contains(got, "put the limiter inside the h2c handler") {
		t.Errorf("%d served, want none; logged, where one line was wanted:\n%s", served.Load(), got)
	}

	client := &http.Client{Transport: &http.Transport{Protocols: new(http.Protocols)}}
	client.Transport.(*http.Transport).Protocols.SetUnencryptedHTTP2(true)
	with := start(true)
	for i, want := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} {
		resp, err := client.Get(with.URL + "/login")
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.ProtoMajor != 2 || resp.StatusCode != want {
			t.Errorf("request %d: HTTP/%d, status %d; want %d", i, resp.ProtoMajor, resp.StatusCode, want)
		}
	}
	client.CloseIdleConnections()
}
