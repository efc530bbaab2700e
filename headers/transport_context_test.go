package headers_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/headers"
)

// A request that has no time for the wait gets the denial at once, and not an
// error later.
func TestTransportDeadline(t *testing.T) {
	for _, c := range []struct {
		deadline time.Duration
		jitter   float64 // for which there is little room
		waits    bool
	}{
		{4 * time.Second, 0, false}, {5 * time.Second, 0, false}, {5*time.Second + 1, 0, true}, {6 * time.Second, 0, true}, {6 * time.Second, 0.5, true}, {6 * time.Second, 1, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), c.deadline)
			defer cancel()
			denial := answer(429, "Retry-After: 5")
			denial.Body = io.NopCloser(strings.NewReader("why"))
			s := play(denial)
			rt := &headers.Transport{Base: s, Jitter: c.jitter}
			resp, err := do(rt, get(t).WithContext(ctx))
			if err != nil {
				t.Fatalf("deadline %v: %v", c.deadline, err)
			}
			if c.waits {
				if resp.StatusCode != http.StatusOK || len(s.at) != 2 || s.at[1] < 5*time.Second || s.at[1] > 5500*time.Millisecond || ctx.Err() != nil {
					t.Errorf("deadline %v: status %d, requests at %v", c.deadline, resp.StatusCode, s.at)
				}
				return
			}
			body, _ := io.ReadAll(resp.Body)
			if resp != denial || string(body) != "why" || time.Since(s.began) != 0 {
				t.Errorf("deadline %v: status %d, body %q, after %v", c.deadline, resp.StatusCode, body, time.Since(s.began))
			}
		})
	}
}

func TestTransportClientTimeoutIsADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(answer(429, "Retry-After: 5"))
		client := http.Client{Transport: s.exact(), Timeout: 4 * time.Second}
		resp, err := client.Get("http://example.com/")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusTooManyRequests || time.Since(s.began) != 0 {
			t.Errorf("status %d after %v", resp.StatusCode, time.Since(s.began))
		}
	})
}

func TestTransportContextEndsTheWait(t *testing.T) {
	reason := errors.New("the user left")
	for name, c := range map[string]struct {
		cause   error
		want    error
		stalled bool // the denial's body
	}{
		"cancelled":               {nil, context.Canceled, false},
		"with a cause":            {reason, reason, false},
		"during a stalled denial": {nil, context.Canceled, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(2*time.Second, func() { cancel(c.cause) })
				denial := answer(429, "Retry-After: 5")
				read := &body{Reader: strings.NewReader("why")}
				if denial.Body = read; c.stalled {
					denial.Body = &stalled{closed: make(chan struct{})}
				}
				s := play(denial)
				resp, err := do(s.exact(), get(t).WithContext(ctx))
				if resp.Response != nil || !errors.Is(err, c.want) || time.Since(s.began) != 2*time.Second {
					t.Errorf("got %v, %v after %v", resp, err, time.Since(s.began))
				}
				if !c.stalled && read.closed != 1 {
					t.Errorf("the denial's body was closed %d times", read.closed)
				}
				s.want(t, 0)
			})
		})
	}
}

// The jitter makes waits longer, by up to its share, and not all alike.
func TestTransportJitter(t *testing.T) {
	for jitter, most := range map[float64]time.Duration{0: 11 * time.Second, 0.5: 15 * time.Second, 1: 20 * time.Second, -1: 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			waits := map[time.Duration]bool{}
			longest := time.Duration(0)
			for range 200 {
				s := play(answer(429, "Retry-After: 10"))
				send(t, &headers.Transport{Base: s, Jitter: jitter}, get(t), 200)
				wait := s.at[1]
				if wait < 10*time.Second || wait > most {
					t.Fatalf("jitter %g: waited %v, want 10s to %v", jitter, wait, most)
				}
				waits[wait], longest = true, max(longest, wait)
			}
			if jitter < 0 {
				if len(waits) != 1 {
					t.Errorf("no jitter: %d different waits", len(waits))
				}
				return
			}
			if half := (10*time.Second + most) / 2; len(waits) < 100 || longest < half {
				t.Errorf("jitter %g: %d different waits, the longest %v", jitter, len(waits), longest)
			}
		})
	}
}
