package examples_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/seed75154129/ratelimit/headers"
)

// waiting are clients that wait as a denial tells them, over a RoundTripper.
var waiting = map[string]func(http.RoundTripper) *http.Client{
	"our Transport": func(rt http.RoundTripper) *http.Client {
		return &http.Client{Transport: &headers.Transport{Base: rt}}
	},
	"go-retryablehttp": func(rt http.RoundTripper) *http.Client {
		c := retryablehttp.NewClient()
		c.HTTPClient.Transport = rt
		c.Logger = nil
		c.RetryWaitMin = time.Millisecond // without a Retry-After that it reads, it is back at once
		return c.StandardClient()
	},
}

// A client that is denied waits for what Retry-After says, and is then admitted:
// it is told neither too little nor, by more than a second, too much.
func TestClientsWaitAsTold(t *testing.T) {
	for _, program := range programs {
		s := start(t, program, trusting)
		for name, client := range waiting {
			t.Run(program+"/"+name, func(t *testing.T) {
				t.Parallel() // all of them wait for a second
				var w witness
				// On a slow machine a token is refilled before the client comes.
				for try := 0; len(w.denials()) == 0; try++ {
					if try == 8 {
						t.Fatal("never denied")
					}
					if err := s.exhaust(program + name); err != nil {
						t.Fatal(err)
					}
					w.attempts = nil
					r, err := http.NewRequest(http.MethodGet, s.url+"/api/items", nil)
					if err != nil {
						t.Fatal(err)
					}
					r.Header.Set("X-Forwarded-For", newClient().ip)
					r.Header.Set("X-User-ID", program+name)
					resp, err := client(&w).Do(r)
					if err != nil {
						t.Fatal(err)
					}
					body, err := io.ReadAll(resp.Body)
					resp.Body.Close()
					if err != nil || resp.StatusCode != http.StatusOK {
						t.Fatalf("in the end: %s %q, %v", resp.Status, body, err)
					}
				}
				if got, want := w.statuses(), []int{429, 200}; !slices.Equal(got, want) {
					t.Fatalf("answered %v, want %v", got, want)
				}
				// A token is refilled each 0.6 s; the wait for it is rounded up to 1 s.
				denied, admitted := w.attempts[0], w.attempts[1]
				if denied.retryAfter != "1" {
					t.Errorf("Retry-After %q, want 1", denied.retryAfter)
				}
				if waited := admitted.sent.Sub(denied.answered); waited < time.Second || waited > 3*time.Second {
					t.Errorf("waited %v, want a second and a little", waited)
				}
			})
		}
	}
}

// exhaust sends requests of a user until one is denied.
func (s *service) exhaust(user string) error {
	for range 1000 {
		// Each is from another address, so that only per-user denies.
		a, err := s.send(newClient().as(user), items)
		if err != nil {
			return err
		}
		if a.status == http.StatusTooManyRequests {
			if a.limit != "100" {
				return fmt.Errorf("denied with a limit of %s, want that of per-user, 100", a.limit)
			}
			return nil
		}
	}
	return errors.New("1000 requests of one user were admitted")
}

// A witness is a RoundTripper that notes what goes through it.
type witness struct{ attempts []attempt }

type attempt struct {
	sent, answered time.Time
	status         int
	retryAfter     string
}

func (w *witness) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := time.Now()
	resp, err := web.Transport.RoundTrip(r)
	if err == nil {
		w.attempts = append(w.attempts, attempt{sent, time.Now(), resp.StatusCode, resp.Header.Get("Retry-After")})
	}
	return resp, err
}

func (w *witness) statuses() []int {
	var all []int
	for _, a := range w.attempts {
		all = append(all, a.status)
	}
	return all
}

func (w *witness) denials() []attempt {
	return slices.DeleteFunc(slices.Clone(w.attempts), func(a attempt) bool { return a.status != http.StatusTooManyRequests })
}
