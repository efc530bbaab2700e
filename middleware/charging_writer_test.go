package middleware_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// Streams, hijacked connections and deadlines: as without the rule.
func TestTheWriterOfAChargedRequestCanDoWhatItsOwnCan(t *testing.T) {
	rule := failures(100)
	charged := func(t *testing.T, http2 bool, next http.HandlerFunc) (string, *http.Client) {
		srv := httptest.NewUnstartedServer(inMemory(t, rule).Handler(next))
		if srv.EnableHTTP2 = http2; http2 {
			srv.StartTLS()
		} else {
			srv.Start()
		}
		t.Cleanup(srv.Close)
		return srv.URL, srv.Client()
	}
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%v", http2), func(t *testing.T) {
			read := make(chan bool)
			url, client := charged(t, http2, func(w http.ResponseWriter, _ *http.Request) {
				_, hijacks := w.(http.Hijacker)
				if hijacks == http2 {
					t.Errorf("http2 %v: a Hijacker %v", http2, hijacks)
				}
				c := http.NewResponseController(w)
				if err := errors.Join(c.SetReadDeadline(time.Now().Add(time.Minute)), c.SetWriteDeadline(time.Now().Add(time.Minute))); err != nil {
					t.Error(err)
				}
				_, _ = io.Copy(w, strings.NewReader("first\n"))
				if err := c.Flush(); err != nil {
					t.Error(err)
				}
				<-read
				if n, err := io.Copy(w, strings.NewReader(strings.Repeat("x", 100_000))); n != 100_000 || err != nil {
					t.Error(n, err)
				}
			})
			resp, err := client.Get(url)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			lines := bufio.NewReader(resp.Body)
			first, err := lines.ReadString('\n')
			close(read)
			rest, restErr := io.ReadAll(lines)
			if err != nil || restErr != nil || first != "first\n" || len(rest) != 100_000 || resp.Header.Get("X-RateLimit-Remaining") != "100" {
				t.Errorf("%q, %v, %d, %v, %v", first, err, len(rest), restErr, resp.Header)
			}
		})
	}
}

func TestHijackedConnectionsStayCharged(t *testing.T) {
	memory, rule := new(algorithms.Memory), failures(5)
	rule.Key = keyfunc.Func(func(*http.Request) (string, error) { return "192.0.2.1", nil })
	h := mustNew(t, ratelimit.Config{Limiter: memory, Rules: []ratelimit.Rule{rule}}).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, buffered, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		w.WriteHeader(http.StatusOK) // too late
		fmt.Fprint(buffered, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
		buffered.Flush()
	}))
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.Start()
	defer srv.Close()
	resp, err := srv.Client().Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "hi" {
		t.Errorf("%q %v", body, err)
	}
	if n := used(t, memory, rule); n != 1 {
		t.Errorf("%d charged", n)
	}
}
