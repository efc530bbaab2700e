package p06

import (
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/algorithms/limitertest"
	"github.com/seed75154129/ratelimit/failmode"
)

// thirdParty denies its sixth call.
type thirdParty struct {
	mu    sync.Mutex
	calls []time.Time
}

func (s *thirdParty) RoundTrip(*http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, time.Now())
	if len(s.calls) == 6 {
		return &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"20"}}, Body: http.NoBody}, nil
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody}, nil
}

func TestClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, before := new(thirdParty), http.DefaultTransport
		http.DefaultTransport = server
		defer func() { http.DefaultTransport = before }()
		redis := limitertest.Redis(t)
		var all sync.WaitGroup
		for range 2 { // processes
			guard := &failmode.Guard{Limiter: &algorithms.Redis{Client: redis, Namespace: "app"}}
			defer guard.Close()
			client := client(guard)
			for range 10 {
				all.Go(func() {
					resp, err := client.Get("https://api.example.org/")
					if err != nil {
						t.Error(err)
						return
					}
					if _ = resp.Body.Close(); resp.StatusCode != http.StatusOK {
						t.Error(resp.Status)
					}
				})
			}
		}
		all.Wait()
		if len(server.calls) != 21 {
			t.Fatalf("%d calls, want 20 and the one that was denied", len(server.calls))
		}
		denied := server.calls[5]
		for i, at := range server.calls[1:] {
			if at.Sub(server.calls[i]) < 100*time.Millisecond {
				t.Errorf("call %d came %s after the one before", i+1, at.Sub(server.calls[i]))
			}
			if after := at.Sub(denied); after > time.Second && after < 20*time.Second { // a queue of ten had their turn
				t.Errorf("call %d came %s after the denial", i+1, after)
			}
		}
		if held := server.calls[20].Sub(denied); held < 20*time.Second {
			t.Errorf("nobody held back: the last call came %s after the denial", held)
		}
	})
}
