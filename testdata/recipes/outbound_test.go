package recipes

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/algorithms/limitertest"
	"github.com/seed75154129/ratelimit/failmode"
)

// A thirdParty notes when it is asked, and denies one request.
type thirdParty struct {
	mu    sync.Mutex
	times []time.Time
}

const (
	deniedCall = 20
	held       = 20 * time.Second
)

func (s *thirdParty) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	resp := &http.Response{StatusCode: 200, Body: http.NoBody, Request: r, Header: http.Header{}}
	if len(s.times) == deniedCall {
		resp.StatusCode = http.StatusTooManyRequests
		resp.Header.Set("Retry-After", "20")
	}
	s.times = append(s.times, time.Now())
	return resp, nil
}

// Two processes share 10 requests a second, however they spell the host, and both wait when one
// of them is told to.
func TestOutbound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, before := new(thirdParty), http.DefaultTransport
		http.DefaultTransport = server
		defer func() { http.DefaultTransport = before }()
		redis := limitertest.Redis(t)
		get := func(client *http.Client, ctx context.Context, url string) error {
			r, _ := http.NewRequestWithContext(ctx, "GET", url, nil)
			resp, err := client.Do(r)
			if err != nil {
				return err
			}
			if resp.Body.Close(); resp.StatusCode != http.StatusOK {
				t.Error(resp.Status)
			}
			return nil
		}
		done := make(chan error)
		var clients []*http.Client
		urls := []string{"https://api.example/", "https://API.Example.:443/"}
		for _, url := range urls { // of a process each
			guard := &failmode.Guard{Limiter: &algorithms.Redis{Client: redis, Namespace: "app"}}
			defer guard.Close()
			client := outbound(guard)
			clients = append(clients, client)
			go func() {
				var errs []error
				for range 25 {
					errs = append(errs, get(client, t.Context(), url))
				}
				done <- errors.Join(errs...)
			}()
		}
		if err := errors.Join(<-done, <-done); err != nil {
			t.Fatal(err)
		}
		if len(server.times) != 51 {
			t.Fatalf("%d requests, want 50 and the denied one again", len(server.times))
		}
		for i := 10; i < len(server.times); i++ {
			if took := server.times[i].Sub(server.times[i-10]); took < time.Second-time.Millisecond {
				t.Errorf("11 requests in %s", took)
			}
		}
		late := 0 // of the other process, which had its turn already
		for _, at := range server.times[deniedCall+1:] {
			if at.Sub(server.times[deniedCall]) < held {
				late++
			}
		}
		if late > 1 {
			t.Errorf("%d requests came while the third party had all processes wait", late)
		}

		// Whose turn would come too late is told so at once.
		var waiting sync.WaitGroup
		for range 50 {
			waiting.Go(func() { _ = get(clients[0], t.Context(), urls[0]) })
		}
		synctest.Wait()
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := get(clients[1], ctx, urls[1]); !errors.Is(err, algorithms.ErrDenied) || time.Since(begun) > 100*time.Millisecond {
			t.Errorf("%v after %s", err, time.Since(begun))
		}
		waiting.Wait()
	})
}
