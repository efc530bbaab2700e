// Package burst draws the picture in README.md from decisions in fake time.
package burst

import (
	"context"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

var update = flag.Bool("update", false, "write docs/burst.svg")

const (
	perAddress = 30 // requests a minute
	perLogin   = 5
	tries      = 40                     // of the script
	tryEvery   = 500 * time.Millisecond // from tryFrom on
	tryFrom    = 5 * time.Second
	viewEvery  = 3 * time.Second
	burstEnds  = 90 * time.Second // of the picture
	client     = "203.0.113.7"
)

// The picture in README.md is drawn from decisions that the middleware makes, in
// fake time. The lower half has a middleware for each rule, one behind the other,
// as limiters are used that decide one limit at a time.
func TestBurstIsDrawn(t *testing.T) {
	rules := []ratelimit.Rule{
		{Name: "per-ip", Key: keyfunc.IP, Limit: algorithms.PerMinute(perAddress)},
		{Name: "login", Match: []string{"POST /login"}, Key: keyfunc.IP, Limit: algorithms.PerMinute(perLogin)},
	}
	one, stacked := play(t, rules), play(t, rules[:1], rules[1:])

	// What the picture claims.
	if n := one.count("POST /login", true); n != perLogin+1 {
		t.Errorf("one decision: %d logins admitted, want %d and the one after Retry-After", n, perLogin)
	}
	if n := one.count("GET /", false); n != 0 {
		t.Errorf("one decision: %d page views denied", n)
	}
	if n := stacked.count("GET /", false); n < 10 {
		t.Errorf("stacked: only %d page views denied", n)
	}
	if one.retried.status != http.StatusOK {
		t.Errorf("after Retry-After: %d", one.retried.status)
	}

	picture := draw(one, stacked)
	path := "../../docs/burst.svg"
	if *update {
		if err := os.WriteFile(path, []byte(picture), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if shown, err := os.ReadFile(path); err != nil || string(shown) != picture {
		t.Errorf("docs/burst.svg is not what the middleware decides (%v); write it by: make burst", err)
	}
}

// An attempt is a request and what became of it.
type attempt struct {
	at      time.Duration // since the beginning
	request string
	status  int
	wait    time.Duration // its Retry-After
}

// A history is a burst and what became of it.
type history struct {
	attempts []attempt
	left     []int64 // of the address's requests, every half second
	last     attempt // of the script, denied
	retried  attempt // as Retry-After said
}

func (h history) count(request string, admitted bool) (n int) {
	for _, a := range h.attempts {
		if a.request == request && (a.status == http.StatusOK) == admitted {
			n++
		}
	}
	return n
}

// play sends a script's logins, and the page views of people at the same address,
// through a middleware for each list of rules. The script comes back when it
// was told to.
func play(t *testing.T, lists ...[]ratelimit.Rule) (h history) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		limiter := new(algorithms.Memory)
		var handler http.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
		for i := range lists {
			m, err := ratelimit.New(ratelimit.Config{Limiter: limiter, Rules: lists[len(lists)-1-i], DenialLogRate: -1})
			if err != nil {
				t.Fatal(err)
			}
			handler = m.Handler(handler)
		}
		begin := time.Now()
		send := func(method, path string) attempt {
			r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
			r.RemoteAddr = client + ":4711"
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			seconds, _ := strconv.Atoi(w.Header().Get("Retry-After"))
			a := attempt{time.Since(begin), method + " " + path, w.Code, time.Duration(seconds) * time.Second}
			h.attempts = append(h.attempts, a)
			return a
		}
		for at := time.Duration(0); at <= burstEnds; at += tryEvery {
			time.Sleep(at - time.Since(begin))
			if at%viewEvery == 0 {
				send(http.MethodGet, "/")
			}
			switch {
			case at >= tryFrom && at < tryFrom+tries*tryEvery:
				h.last = send(http.MethodPost, "/login")
			case h.retried.status == 0 && h.last.status != 0 && at >= h.last.at+h.last.wait:
				h.retried = send(http.MethodPost, "/login")
			}
			d, err := limiter.Peek(context.Background(), algorithms.Check{Rule: "per-ip", Key: client, Limit: algorithms.PerMinute(perAddress)})
			if err != nil {
				t.Fatal(err)
			}
			h.left = append(h.left, d.Results[0].Remaining)
		}
	})
	return h
}
