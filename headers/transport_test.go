package headers_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/headers"
)

// A script answers the requests of a test, one after the other, and notes what
// it saw of them. What comes after the last answer gets a 200.
type script struct {
	answers []reply
	began   time.Time
	at      []time.Duration // since began
	bodies  []string
	idle    int // times CloseIdleConnections was called
}

func play(answers ...reply) *script {
	return &script{answers: answers, began: time.Now()}
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	s.at = append(s.at, time.Since(s.began))
	body := ""
	if r.Body != nil {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		body = string(b)
		r.Body.Close()
	}
	s.bodies = append(s.bodies, body)
	n := len(s.at) - 1
	if n >= len(s.answers) {
		return answer(http.StatusOK).Response, nil
	}
	return s.answers[n].Response, nil
}

func (s *script) CloseIdleConnections() { s.idle++ }

func (s *script) want(t *testing.T, at ...time.Duration) {
	t.Helper()
	if !slices.Equal(s.at, at) {
		t.Errorf("requests at %v, want %v", s.at, at)
	}
}

// exact is a Transport without jitter.
func (s *script) exact() *headers.Transport {
	return &headers.Transport{Base: s, Jitter: -1}
}

func get(t *testing.T) *http.Request {
	return httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://example.com/", nil)
}

// do sends a request through a RoundTripper.
func do(rt http.RoundTripper, r *http.Request) (reply, error) {
	resp, err := rt.RoundTrip(r) //nolint:bodyclose // scripted bodies hold nothing, and tests count how often they are closed
	return reply{resp}, err
}

// send expects a response with a status.
func send(t *testing.T, rt http.RoundTripper, r *http.Request, status int) reply {
	t.Helper()
	resp, err := do(rt, r)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != status {
		t.Errorf("status %d, want %d", resp.StatusCode, status)
	}
	return resp
}

func TestTransportReturnsWhatItDoesNotRepeat(t *testing.T) {
	const once = "Retry-After: 1"
	withBody := func(method string, header http.Header) *http.Request {
		r, err := http.NewRequest(method, "http://example.com/", strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		if header != nil {
			r.Header = header
		}
		return r
	}
	noMethod := withBody(http.MethodGet, nil)
	noMethod.Method = "" // means GET
	stream := withBody(http.MethodPut, nil)
	stream.GetBody = nil
	noBody := withBody(http.MethodPost, nil)
	noBody.Body, noBody.GetBody = http.NoBody, nil

	for name, c := range map[string]struct {
		transport headers.Transport
		request   *http.Request
		denial    reply
		requests  int
	}{
		"200":                    {headers.Transport{}, get(t), answer(200, once), 1},
		"302":                    {headers.Transport{}, get(t), answer(302, once), 1},
		"403":                    {headers.Transport{}, get(t), answer(403), 1},
		"403, as GitHub":         {headers.Transport{}, get(t), answer(403, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 5"), 2},
		"403, some left":         {headers.Transport{}, get(t), answer(403, "X-RateLimit-Remaining: 7", "X-RateLimit-Reset: 5"), 1},
		"403 with Retry-After":   {headers.Transport{}, withBody(http.MethodPost, nil), answer(403, once), 2},
		"OpenAI":                 {headers.Transport{}, get(t), answer(429, "x-ratelimit-remaining-requests: 0", "x-ratelimit-reset-requests: 5s"), 2},
		"500":                    {headers.Transport{}, get(t), answer(500, once), 1},
		"0 left of an admitted":  {headers.Transport{}, get(t), answer(200, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 5"), 1},
		"no hint":                {headers.Transport{}, get(t), answer(429), 1},
		"a malformed hint":       {headers.Transport{}, get(t), answer(429, "Retry-After: soon"), 1},
		"a minute":               {headers.Transport{}, get(t), answer(429, "Retry-After: 60"), 2},
		"more than a minute":     {headers.Transport{}, get(t), answer(429, "Retry-After: 61"), 1},
		"more than MaxWait":      {headers.Transport{MaxWait: 5 * time.Second}, get(t), answer(429, "Retry-After: 6"), 1},
		"MaxWait":                {headers.Transport{MaxWait: 5 * time.Second}, get(t), answer(429, "Retry-After: 5"), 2},
		"a longer MaxWait":       {headers.Transport{MaxWait: time.Hour}, get(t), answer(429, "Retry-After: 3600"), 2},
		"centuries":              {headers.Transport{}, get(t), answer(429, "Retry-After: Fri, 31 Dec 9999 23:59:59 GMT"), 1},
		"one line of two":        {headers.Transport{}, get(t), answer(429, once, "Retry-After: 3600"), 1},
		"a reset in centuries":   {headers.Transport{}, get(t), answer(429, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 99999999999"), 1},
		"negative":               {headers.Transport{}, get(t), answer(429, "Retry-After: -5"), 1},
		"for ever":               {headers.Transport{}, get(t), answer(429, "Retry-After: 99999999999999999999"), 1},
		"no retries":             {headers.Transport{MaxRetries: -1}, get(t), answer(429, once), 1},
		"POST 429":               {headers.Transport{}, withBody(http.MethodPost, nil), answer(429, once), 2},
		"POST 429, no body":      {headers.Transport{}, noBody, answer(429, once), 2},
		"POST 503":               {headers.Transport{}, withBody(http.MethodPost, nil), answer(503, once), 1},
		"PATCH 503":              {headers.Transport{}, withBody(http.MethodPatch, nil), answer(503, once), 1},
		"PUT 503":                {headers.Transport{}, withBody(http.MethodPut, nil), answer(503, once), 2},
		"DELETE 503":             {headers.Transport{}, withBody(http.MethodDelete, nil), answer(503, once), 2},
		"HEAD 503":               {headers.Transport{}, withBody(http.MethodHead, nil), answer(503, once), 2},
		"OPTIONS 503":            {headers.Transport{}, withBody(http.MethodOptions, nil), answer(503, once), 2},
		"TRACE 503":              {headers.Transport{}, withBody(http.MethodTrace, nil), answer(503, once), 2},
		"no method 503":          {headers.Transport{}, noMethod, answer(503, once), 2},
		"POST 503 with a key":    {headers.Transport{}, withBody(http.MethodPost, http.Header{"Idempotency-Key": {"7"}}), answer(503, once), 2},
		"a body that is gone":    {headers.Transport{}, stream, answer(429, once), 1},
		"a stream with 503, too": {headers.Transport{}, stream, answer(503, once), 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := play(c.denial)
				c.transport.Base = s
				resp, err := do(&c.transport, c.request.WithContext(t.Context()))
				if err != nil {
					t.Fatal(err)
				}
				if (resp == c.denial) != (c.requests == 1) || len(s.at) != c.requests {
					t.Errorf("status %d after %d requests, want %d", resp.StatusCode, len(s.at), c.requests)
				}
				if c.requests == 1 && time.Since(s.began) != 0 {
					t.Errorf("returned after %v, want at once", time.Since(s.began))
				}
			})
		})
	}
}

func TestTransportGivesUp(t *testing.T) {
	for maxRetries, want := range map[int]int{-1: 0, 0: 3, 1: 1, 5: 5} {
		synctest.Test(t, func(t *testing.T) {
			var denials []reply
			var at []time.Duration
			for i := range want + 1 {
				denials = append(denials, answer(429, "Retry-After: 2"))
				at = append(at, time.Duration(i)*2*time.Second)
			}
			s := play(denials...)
			rt := s.exact()
			rt.MaxRetries = maxRetries
			if resp := send(t, rt, get(t), 429); resp != denials[want] {
				t.Errorf("MaxRetries %d: not the last denial", maxRetries)
			}
			s.want(t, at...)
		})
	}
}

func TestTransportEachDenialSaysHowLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(answer(429, "Retry-After: 1"), answer(503, "Retry-After: 10"), answer(429, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 3"))
		send(t, s.exact(), get(t), 200)
		s.want(t, 0, time.Second, 11*time.Second, 14*time.Second)
	})
}

func TestTransportReturnsErrorsOfBase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(answer(429, "Retry-After: 1"))
		broken := errors.New("connection reset")
		rt := s.exact()
		rt.Base = roundTripper(func(r *http.Request) (*http.Response, error) {
			if len(s.at) > 0 {
				return nil, broken
			}
			return s.RoundTrip(r)
		})
		if resp, err := do(rt, get(t)); resp.Response != nil || !errors.Is(err, broken) {
			t.Errorf("got %v, %v", resp, err)
		}
		s.want(t, 0)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestTransportClosesIdleConnections(t *testing.T) {
	s := play()
	client := http.Client{Transport: s.exact()}
	client.CloseIdleConnections()
	if s.idle != 1 {
		t.Errorf("called %d times", s.idle)
	}
	(&headers.Transport{Base: roundTripper(nil)}).CloseIdleConnections() // one that has none
	new(headers.Transport).CloseIdleConnections()
}

// One Transport serves many requests at once, over real connections, and uses a
// connection again after a denial.
func TestTransportConcurrently(t *testing.T) {
	var requests, connections atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || string(body) != r.URL.Path {
			t.Errorf("%s: body %q, %v", r.URL, body, err)
		}
		if requests.Add(1)%2 == 1 {
			w.Header().Set("Retry-After", "0.001")
			w.WriteHeader(http.StatusTooManyRequests)
			io.WriteString(w, strings.Repeat("denied ", 1000))
		}
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	const clients, each = 8, 25
	base := &http.Transport{MaxIdleConnsPerHost: clients}
	client := http.Client{Transport: &headers.Transport{Base: base, MaxRetries: 100}}
	defer client.CloseIdleConnections()
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() {
			for j := range each {
				path := fmt.Sprintf("/%d/%d", i, j)
				resp, err := client.Post(server.URL+path, "text/plain", strings.NewReader(path))
				if err != nil || resp.StatusCode != http.StatusOK {
					t.Errorf("%s: %v, %v", path, resp, err)
					return
				}
				resp.Body.Close()
			}
		})
	}
	group.Wait()
	if n := requests.Load(); n < 2*clients*each-1 {
		t.Errorf("%d requests, so some were not denied", n)
	}
	if n := connections.Load(); n > 2*clients {
		t.Errorf("%d connections for %d clients", n, clients)
	}
}
