package main

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/seed75154129/ratelimit/headers"
)

// obey sends a request of a user who has nothing left with a client that waits
// as long as a denial says, and checks that one wait is enough.
func (s *story) obey(request, client, user string) {
	watch := &watch{}
	s.web = &http.Client{Transport: &headers.Transport{Base: watch}}
	defer func() { s.web = http.DefaultClient }()

	watch.denied = func(resp *http.Response) {
		s.print(request, client, user, 1, resp.Status, "")
		fmt.Printf("      Retry-After: %s\n", resp.Header.Get("Retry-After"))
	}
	watch.again = func(waited time.Duration) { fmt.Printf("      waited %.2f s\n", waited.Seconds()) }

	// Where a token was refilled meanwhile, the request is admitted and uses it up.
	for range 20 {
		got := s.ask(request, client, user)
		if s.err == nil && (!strings.HasPrefix(got, "200 per-user") || watch.denials > 1) {
			s.err = fmt.Errorf("%s as %s: %d denials, then %q; want 200 after one", request, user, watch.denials, got)
		}
		if s.err != nil || watch.denials > 0 {
			break
		}
	}
	if s.err == nil && watch.denials == 0 {
		s.err = fmt.Errorf("%s as %s: never denied", request, user)
	}
	s.print(request, client, user, 1, s.status, s.left())
}

// A watch is a RoundTripper that tells of denials, and of what follows one.
type watch struct {
	denied  func(*http.Response)
	again   func(waited time.Duration)
	denials int
	last    time.Time // denial
}

func (w *watch) RoundTrip(r *http.Request) (*http.Response, error) {
	if w.denials > 0 {
		w.again(time.Since(w.last))
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err == nil && resp.StatusCode == http.StatusTooManyRequests {
		w.denials, w.last = w.denials+1, time.Now()
		w.denied(resp)
	}
	return resp, err
}
