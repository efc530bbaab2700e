package headers_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/algorithms/limitertest"
	"github.com/seed75154129/ratelimit/headers"
	"github.com/seed75154129/ratelimit/internal/banned"
)

// outbound are calls to a server, ten a second.
func outbound(r *http.Request) []algorithms.Check {
	return []algorithms.Check{{Rule: "outbound", Key: headers.Host(r), Limit: algorithms.Limit{Rate: 10, Period: time.Second, Burst: 10, Algorithm: algorithms.LeakyBucket}}}
}

// A third is a third party that notes when it was called, and says of the call of a
// number what is wrong with it.
type third struct {
	mu    sync.Mutex
	began time.Time
	calls []time.Duration
	wrong map[int]reply // by the number of the call, from 0
}

func (s *third) RoundTrip(*http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, time.Since(s.began))
	if r, ok := s.wrong[len(s.calls)-1]; ok {
		return r.Response, nil
	}
	return answer(http.StatusOK).Response, nil
}

// All processes keep one limit together, and a 429 to one of them holds back all.
func TestTransportsOfSeveralProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := limitertest.Redis(t)
		daily := algorithms.Check{Rule: "daily", Limit: algorithms.Limit{Rate: 1000, Period: 24 * time.Hour, Algorithm: algorithms.FixedWindow}}
		checks := func(r *http.Request) []algorithms.Check { return append(outbound(r), daily) }
		server := &third{began: time.Now(), wrong: map[int]reply{15: answer(http.StatusTooManyRequests, "Retry-After: 30")}}
		var all sync.WaitGroup
		for range 3 {
			process := &headers.Transport{Base: server, Jitter: -1, Limiter: &algorithms.Redis{Client: client, Namespace: "app"}, Checks: checks}
			for range 10 {
				all.Go(func() { send(t, process, get(t), http.StatusOK) })
			}
		}
		all.Wait()
		if len(server.calls) != 31 {
			t.Fatalf("%d calls, want 30 and the one that is repeated", len(server.calls))
		}
		for i, at := range server.calls[1:] {
			if gap := at - server.calls[i]; gap < 100*time.Millisecond {
				t.Errorf("call %d came %s after the one before", i+1, gap)
			}
		}
		// Not even the calls go out that had their slot already.
		if denied, next := server.calls[15], server.calls[16]; next < denied+30*time.Second {
			t.Errorf("denied at %s, and then called at %v", denied, server.calls[16:])
		}
		// The other check is charged once for a call that was held back.
		d, err := (&algorithms.Redis{Client: client, Namespace: "app"}).Peek(t.Context(), daily)
		if err != nil || d.Results[0].Remaining != daily.Limit.Rate-31 {
			t.Errorf("%d of %d are left after 31 calls; %v", d.Results[0].Remaining, daily.Limit.Rate, err)
		}
	})
}

// A call that had its slot, and has no time for what the 429 asks for, is denied in its turn.
func TestTransportHasNoTimeToBeHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, s := new(algorithms.Memory), play(answer(http.StatusTooManyRequests, "Retry-After: 30"))
		slow := roundTripper(func(r *http.Request) (*http.Response, error) {
			time.Sleep(50 * time.Millisecond)
			return s.RoundTrip(r)
		})
		rt := &headers.Transport{Base: slow, MaxWait: 20 * time.Second, Limiter: limiter, Checks: outbound}
		var all sync.WaitGroup
		all.Go(func() { send(t, rt, get(t), http.StatusTooManyRequests) })
		all.Go(func() {
			time.Sleep(time.Millisecond)
			if _, err := do(rt, get(t)); !errors.Is(err, algorithms.ErrDenied) || time.Since(s.began) != 100*time.Millisecond {
				t.Errorf("%v after %s", err, time.Since(s.began))
			}
		})
		all.Wait()
		s.want(t, 50*time.Millisecond)
	})
}

func TestTransportBansTheFirstCheckForAsLongAsTold(t *testing.T) {
	for name, c := range map[string]struct {
		reply reply
		want  time.Duration
	}{
		"429":                  {answer(http.StatusTooManyRequests, "Retry-After: 90"), 90 * time.Second},
		"429 without a word":   {answer(http.StatusTooManyRequests), 0},
		"429 for a year":       {answer(http.StatusTooManyRequests, "Retry-After: 31536000"), time.Hour},
		"429 for ever":         {answer(http.StatusTooManyRequests, "Retry-After: 99999999999"), 0},
		"429 at a Unix time":   {answer(http.StatusTooManyRequests, "Date: Fri, 27 Nov 2026 14:00:00 GMT", "Retry-After: 1795788030"), 30 * time.Second},
		"403 that says when":   {answer(http.StatusForbidden, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 30"), 30 * time.Second},
		"403":                  {answer(http.StatusForbidden), 0},
		"429 for a moment":     {answer(http.StatusTooManyRequests, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 0.0000011"), time.Second},
		"503":                  {answer(http.StatusServiceUnavailable, "Retry-After: 90"), 0},
		"200 with Retry-After": {answer(http.StatusOK, "Retry-After: 90"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter := new(algorithms.Memory)
				checks := func(r *http.Request) []algorithms.Check {
					return append(outbound(r), algorithms.Check{Rule: "all", Limit: algorithms.PerMinute(100)})
				}
				rt := &headers.Transport{Base: play(c.reply), MaxRetries: -1, Limiter: limiter, Checks: checks}
				if _, err := do(rt, get(t)); err != nil {
					t.Fatal(err)
				}
				for i, want := range []time.Duration{c.want, 0} {
					d, err := limiter.Peek(t.Context(), banned.Look(&checks(get(t))[i]))
					if err != nil || d.Allowed != (want == 0) || d.RetryAfter() != want {
						t.Errorf("check %d: %+v %v, want %s", i, d, err, want)
					}
				}
			})
		})
	}
}

func TestTransportIsDeniedByItsLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, s := new(algorithms.Memory), play()
		rt := &headers.Transport{Base: s, MaxWait: 10 * time.Second, Limiter: limiter, Checks: outbound}
		if err := banned.Set(t.Context(), limiter, &outbound(get(t))[0], 20*time.Second); err != nil {
			t.Fatal(err)
		}
		closed := false
		r := get(t)
		r.Method, r.Body = http.MethodPost, closing{strings.NewReader("hello"), &closed}
		begin := time.Now()
		if _, err := do(rt, r); !errors.Is(err, algorithms.ErrDenied) || !closed || time.Since(begin) > 0 {
			t.Errorf("longer than MaxWait: %v; the body closed: %v; after %s", err, closed, time.Since(begin))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := do(rt, get(t).WithContext(ctx)); !errors.Is(err, algorithms.ErrDenied) || time.Since(begin) > 0 {
			t.Errorf("longer than the deadline: %v after %s", err, time.Since(begin))
		}
		time.Sleep(15 * time.Second)
		send(t, rt, get(t), http.StatusOK) // in five seconds
		s.want(t, 20*time.Second)

		if err := banned.Set(t.Context(), limiter, &outbound(get(t))[0], 5*time.Second); err != nil {
			t.Fatal(err)
		}
		left := errors.New("left")
		ctx, leave := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { leave(left) })
		if _, err := do(rt, get(t).WithContext(ctx)); !errors.Is(err, left) {
			t.Errorf("who leaves gets %v", err)
		}
	})
}

type closing struct {
	io.Reader
	closed *bool
}

func (c closing) Close() error { *c.closed = true; return nil }

func TestTransportNeedsChecks(t *testing.T) {
	rt := &headers.Transport{Base: play(), Limiter: new(algorithms.Memory)}
	rt.Checks = func(*http.Request) []algorithms.Check { return nil }
	send(t, rt, get(t), http.StatusOK) // not limited
}

// Each attempt is asked for, and a limiter that fails fails the request.
func TestTransportAsksBeforeEachAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := &taking{Memory: new(algorithms.Memory)}
		s := play(answer(http.StatusServiceUnavailable, "Retry-After: 3"), answer(http.StatusTooManyRequests, "Retry-After: 5"))
		rt := &headers.Transport{Base: s, Jitter: -1, Limiter: limiter, Checks: outbound}
		send(t, rt, get(t), http.StatusOK)
		s.want(t, 0, 3*time.Second, 8*time.Second)
		if limiter.takes != 3 {
			t.Errorf("asked %d times", limiter.takes)
		}
		limiter.err = errors.New("away")
		if _, err := do(rt, get(t)); !errors.Is(err, limiter.err) || len(s.at) != 3 {
			t.Errorf("%v, after %d attempts", err, len(s.at))
		}
	})
}

// taking is a Memory that counts its takes, and fails as it is told.
type taking struct {
	*algorithms.Memory
	takes int
	err   error
}

func (a *taking) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	if strings.HasSuffix(checks[0].Rule, "~ban") {
		return a.Memory.Take(ctx, checks...) // of a ban
	}
	if a.takes++; a.err != nil {
		return algorithms.Decision{}, a.err
	}
	return a.Memory.Take(ctx, checks...)
}
