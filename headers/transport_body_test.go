package headers_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
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
