package headers_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/headers"
)

// A stalled body is one whose server sends a few bytes and then nothing, until it is
// closed. Drip is the time between two bytes, if more come.
type stalled struct {
	closed chan struct{}
	drip   time.Duration
}

func (s *stalled) Read(p []byte) (int, error) {
	var next <-chan time.Time
	if s.drip > 0 {
		next = time.After(s.drip)
	}
	select {
	case <-s.closed:
		return 0, errors.New("read on a closed body")
	case <-next:
		p[0] = ' '
		return 1, nil
	}
}

func (s *stalled) Close() error { close(s.closed); return nil } // panics the second time

// However slowly a denial comes, it does not make the wait longer.
func TestTransportStalledDenial(t *testing.T) {
	for _, c := range []struct {
		retryAfter        string
		drip, least, most time.Duration
	}{
		{"5", 0, 5 * time.Second, 5 * time.Second},
		{"5", time.Second - 1, 5 * time.Second, 5 * time.Second},
		{"0.001", 0, time.Millisecond, time.Second}, // so long a healthy server may take to send it
	} {
		synctest.Test(t, func(t *testing.T) {
			denial := answer(429, "Retry-After: "+c.retryAfter)
			body := &stalled{make(chan struct{}), c.drip}
			denial.Body = body
			s := play(denial)
			send(t, s.exact(), get(t), 200)
			if len(s.at) != 2 || s.at[1] < c.least || s.at[1] > c.most {
				t.Errorf("requests at %v, want the second after %s to %s", s.at, c.least, c.most)
			}
			synctest.Wait()
			select {
			case <-body.closed:
			default:
				t.Error("the body is open")
			}
		})
	}
}

func TestTransportContextEndsAStalledDenial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(2*time.Second, cancel)
		denial := answer(429, "Retry-After: 5")
		denial.Body = &stalled{closed: make(chan struct{})}
		s := play(denial)
		resp, err := do(s.exact(), get(t).WithContext(ctx))
		if resp.Response != nil || !errors.Is(err, context.Canceled) || time.Since(s.began) != 2*time.Second {
			t.Errorf("got %v, %v after %v", resp, err, time.Since(s.began))
		}
		s.want(t, 0)
	})
}

// The same over a connection of net/http, in which Close and Read meet.
func TestTransportStalledConnection(t *testing.T) {
	for name, denial := range map[string]string{
		"a length":   "Content-Length: 1000\r\n\r\nwhy",
		"chunks":     "Transfer-Encoding: chunked\r\n\r\n3\r\nwhy\r\n",
		"compressed": "Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n\x1f\x8b\x08\r\n",
		"no length":  "Connection: close\r\n\r\nwhy",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, at := time.Now(), []time.Duration{}
				base := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
					client, server := net.Pipe()
					go func() {
						defer server.Close()
						if _, err := http.ReadRequest(bufio.NewReader(server)); err != nil {
							t.Error(err)
						}
						at = append(at, time.Since(began))
						if len(at) > 1 {
							io.WriteString(server, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
							return
						}
						io.WriteString(server, "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 5\r\n"+denial)
						server.Read(make([]byte, 1)) // until the client hangs up
					}()
					return client, nil
				}}
				client := &http.Client{Transport: &headers.Transport{Base: base, Jitter: -1}}
				defer client.CloseIdleConnections()
				resp, err := client.Get("http://example.com/")
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if want := []time.Duration{0, 5 * time.Second}; resp.StatusCode != http.StatusOK || !slices.Equal(at, want) {
					t.Errorf("status %d, requests at %v, want %v", resp.StatusCode, at, want)
				}
			})
		})
	}
}
