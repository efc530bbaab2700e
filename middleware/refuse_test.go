package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

type userKey struct{}

// required refuses whom authentication has not let in.
func required() ratelimit.Rule {
	user := func(ctx context.Context) (string, bool) { u, ok := ctx.Value(userKey{}).(string); return u, ok }
	return ratelimit.Rule{Name: "per-user", Key: keyfunc.Required(keyfunc.Context(user), http.StatusUnauthorized), Limit: algorithms.PerHour(100)}
}

// Whoever guesses tokens is refused for each, and must not guess more of them
// than the other rules admit, in whatever order the rules stand.
func TestGuessingTokensIsLimited(t *testing.T) {
	atOnce := ratelimit.Rule{Name: "at-once", Key: keyfunc.IP, Limit: algorithms.MaxInFlight(1), Hidden: true}
	pace := ratelimit.Rule{Name: "pace", Key: keyfunc.IP, Limit: algorithms.Limit{Rate: 1, Period: time.Hour, Burst: 20, Algorithm: algorithms.LeakyBucket}}
	for name, rules := range map[string][]ratelimit.Rule{
		"after the others":           {perHour("per-ip", 20), required()},
		"before the others":          {required(), perHour("per-ip", 20)},
		"holds no place":             {atOnce, required(), perHour("per-ip", 20)},
		"does not wait for its turn": {required(), pace},
	} {
		t.Run(name, func(t *testing.T) {
			m := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: rules})
			h := m.Handler(ok)
			codes := map[int]int{}
			for i := range 5000 {
				w := serve(h, "GET /", "Authorization", fmt.Sprint("Bearer ", i))
				codes[w.Code]++
				switch left := w.Header().Get("X-RateLimit-Remaining"); {
				case w.Code == http.StatusUnauthorized && (left != fmt.Sprint(19-i) || w.Header().Get("Retry-After") != ""):
					t.Fatalf("guess %d: %v", i, w.Header())
				case w.Code == http.StatusTooManyRequests && (left != "0" || w.Header().Get("Retry-After") == ""):
					t.Fatalf("guess %d: %v", i, w.Header())
				}
			}
			if codes[http.StatusUnauthorized] != 20 || codes[http.StatusTooManyRequests] != 4980 {
				t.Errorf("%v", codes)
			}
			// Somebody who is let in has used none of the user's limit.
			r := from("203.0.113.9", request("GET /"))
			w := do(h, r.WithContext(context.WithValue(r.Context(), userKey{}, "alice")))
			if w.Code != http.StatusNoContent || w.Header().Get("X-RateLimit-Remaining") != "19" {
				t.Errorf("alice: %d %v", w.Code, w.Header())
			}
		})
	}
}

func TestTakeAndPeekOfARefusedRequest(t *testing.T) {
	var observed []string
	m := mustNew(t, ratelimit.Config{
		Limiter: new(algorithms.Memory),
		Rules:   []ratelimit.Rule{required(), perHour("per-ip", 2)},
		Observe: func(_ *http.Request, d algorithms.Decision) {
			observed = append(observed, fmt.Sprint(d.Allowed, len(d.Results)))
		},
	})
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for i, step := range []struct {
		ask     func(*http.Request) (algorithms.Decision, error)
		refused bool
	}{
		{m.Peek, true}, {m.Take, true}, {m.Peek, true}, {m.Take, true}, {m.Peek, false}, {m.Take, false}, {m.Take, false},
	} {
		d, err := step.ask(r)
		refusal, is := errors.AsType[*keyfunc.StatusError](err)
		if is != step.refused || is && refusal.Status != http.StatusUnauthorized || d.Allowed {
			t.Errorf("step %d: %+v, %v", i, d, err)
		}
		if !step.refused && (err != nil || d.RetryAfter() == 0) {
			t.Errorf("step %d is no denial: %+v, %v", i, d, err)
		}
	}
	if fmt.Sprint(observed) != "[true 1 true 1 false 1 false 1]" {
		t.Errorf("observed %q", observed)
	}
	if d, err := inMemory(t, perHour("elsewhere", 5, "/elsewhere")).Take(r); err != nil || !d.Allowed || len(d.Results) != 0 {
		t.Errorf("where no rule applies: %+v, %v", d, err)
	}
}

// An application answers what keys refuse in its own words. It sees the rule and
// the reason; the client sees neither unless it is told.
func TestRefusedRespondsInsteadOfTheDefault(t *testing.T) {
	broken := errors.New("pq: connection to 10.0.0.7 refused")
	for name, c := range map[string]struct {
		key    keyfunc.Key
		status int // of the StatusError; 0 where there is none
	}{
		"a required key": {keyfunc.Required(keyfunc.Header("User"), http.StatusBadRequest), http.StatusBadRequest},
		"a failing key":  {keyfunc.Func(func(*http.Request) (string, error) { return "", broken }), 0},
	} {
		t.Run(name, func(t *testing.T) {
			m := mustNew(t, ratelimit.Config{
				Limiter: new(algorithms.Memory),
				Rules:   []ratelimit.Rule{perHour("per-ip", 10), {Name: "account", Key: c.key, Limit: algorithms.PerHour(1)}},
				Refused: func(w http.ResponseWriter, _ *http.Request, err error) {
					if !strings.HasPrefix(err.Error(), `middleware: rule "account": key: `) {
						t.Errorf("%v", err)
					}
					if refusal, is := errors.AsType[*keyfunc.StatusError](err); is != (c.status != 0) || is && refusal.Status != c.status {
						t.Errorf("%v", err)
					}
					if c.status == 0 && !errors.Is(err, broken) {
						t.Errorf("%v", err)
					}
					w.WriteHeader(http.StatusTeapot)
					fmt.Fprint(w, "who are you?")
				},
			})
			w := serve(m.Handler(ok), "GET /")
			if w.Code != http.StatusTeapot || w.Body.String() != "who are you?" || w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("X-RateLimit-Remaining") != "9" {
				t.Errorf("%d %q %v", w.Code, w.Body, w.Header())
			}
		})
	}
}

// A refusal is logged like a denial: with its reason, sampled, and at level Info.
func TestRefusalsAreLogged(t *testing.T) {
	account := func(key keyfunc.Key) ratelimit.Rule {
		return ratelimit.Rule{Name: "account", Key: key, Limit: algorithms.PerHour(100)}
	}
	json := account(keyfunc.Required(keyfunc.BodyJSON("email", 1<<10), http.StatusBadRequest))
	own := account(keyfunc.Func(func(*http.Request) (string, error) {
		return "", fmt.Errorf("tenants: %w", &keyfunc.StatusError{Status: 402, Reason: "unpaid\nlevel=ERROR"})
	}))
	for name, c := range map[string]struct {
		rule ratelimit.Rule
		rate int
		want []string // the lines
	}{
		"no body":              {rule: json, want: []string{`rule=account status=400 reason="body: there is none" suppressed=0`}},
		"no user":              {rule: required(), want: []string{"rule=per-user status=401 reason="}},
		"a key of a program's": {rule: own, want: []string{`status=402 reason="unpaid\nlevel=ERROR" suppressed=0`}},
		"two a second":         {rule: json, rate: 2, want: []string{"suppressed=0", "suppressed=0"}},
		"none":                 {rule: json, rate: -1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				m := mustNew(t, ratelimit.Config{Rules: []ratelimit.Rule{perHour("per-ip", 100), c.rule}, Limiter: new(algorithms.Memory), DenialLogRate: c.rate,
					Logger: slog.New(slog.NewTextHandler(&log, nil))})
				for range 2 { // seconds
					times(3, m.Handler(ok), "POST /", "Content-Type", "application/x-www-form-urlencoded")
					time.Sleep(time.Second)
				}
				lines := strings.Split(strings.TrimSpace(log.String()), "\n")
				if log.Len() == 0 {
					lines = nil
				}
				if len(lines) != 2*len(c.want) {
					t.Fatalf("%d lines:\n%s", len(lines), log.String())
				}
				for i, want := range c.want {
					if !strings.Contains(lines[i], `level=INFO msg="ratelimit: refused" `) || !strings.Contains(lines[i], want) {
						t.Errorf("%s; want %s", lines[i], want)
					}
				}
			})
		})
	}
}
