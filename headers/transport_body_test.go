package headers_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/headers"
)

func TestTransportSendsTheBodyAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(answer(429, "Retry-After: 1"), answer(429, "Retry-After: 1"))
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://example.com/", strings.NewReader("five!"))
		if err != nil {
			t.Fatal(err)
		}
		body, getBody := r.Body, 0
		open := r.GetBody
		r.GetBody = func() (io.ReadCloser, error) { getBody++; return open() }
		send(t, s.exact(), r, 200)
		if want := []string{"five!", "five!", "five!"}; !slices.Equal(s.bodies, want) || getBody != 2 {
			t.Errorf("bodies %q of %d GetBody, want %q of 2", s.bodies, getBody, want)
		}
		if r.Body != body {
			t.Error("the caller's request has another body")
		}
	})
}

func TestTransportGetBodyFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(answer(429, "Retry-After: 1"))
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://example.com/", strings.NewReader("body"))
		gone := errors.New("the file is gone")
		r.GetBody = func() (io.ReadCloser, error) { return nil, gone }
		if resp, err := do(s.exact(), r); resp.Response != nil || !errors.Is(err, gone) || !strings.Contains(err.Error(), "GetBody") {
			t.Errorf("got %v, %v", resp, err)
		}
		s.want(t, 0)
	})
}

// A body counts what is done to it.
type body struct {
	io.Reader
	read, closed int
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.read += n
	return n, err
}

func (b *body) Close() error { b.closed++; return nil }

// zeroes is a body without an end.
type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestTransportDiscardsDenials(t *testing.T) {
	// A Transport built with Go 1.27 only closes a body: net/http reads its rest then.
	for name, c := range map[string]struct {
		from io.Reader
		most int
	}{
		"short":   {strings.NewReader("denied"), 6},
		"endless": {zeroes{}, 64 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &body{Reader: c.from}
				denial := answer(429, "Retry-After: 1")
				denial.Body = b
				s := play(denial)
				send(t, s.exact(), get(t), 200)
				if b.read > c.most || b.closed != 1 {
					t.Errorf("read %d bytes and closed %d times; want at most %d and once", b.read, b.closed, c.most)
				}
			})
		})
	}
}

// http.Client takes a response without a body from a RoundTripper, so we do too.
func TestTransportDenialWithoutABody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		denial := answer(429, "Retry-After: 1")
		denial.Body = nil
		s := play(denial)
		send(t, s.exact(), get(t), 200)
		s.want(t, 0, time.Second)
	})
}

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
