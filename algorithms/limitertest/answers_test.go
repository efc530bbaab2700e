package limitertest_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit"
	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/algorithms/limitertest"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// appWith is a program with its rules, given what decides them.
func appWith(limiter algorithms.Limiter) http.Handler {
	limit, err := ratelimit.New(ratelimit.Config{Limiter: limiter, Logger: slog.New(slog.DiscardHandler), Rules: []ratelimit.Rule{
		{Name: "per-ip", Key: keyfunc.IP, Limit: ratelimit.PerMinute(200), Fail: ratelimit.FailOpen},
		{Name: "login", Match: []string{"/login"}, Key: keyfunc.IP, Limit: ratelimit.MustParse("5/1m sliding_log")},
	}})
	if err != nil {
		panic(err)
	}
	return limit.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
}

// What a client sees whom the rule login denies.
func ExampleDeny() {
	w := httptest.NewRecorder()
	appWith(limitertest.Deny("login", time.Minute)).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/login", nil))
	fmt.Println(w.Code, w.Header().Get("Retry-After"))
	// Output: 429 60
}

// In a Guard as well, each limiter gives the answer of its name, whatever was asked before.
func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		name          string
		limiter       algorithms.Limiter
		root, login   int
		retryAfter    string
		remaining     string
		guardedStatus int // of /login; an outage counts locally
	}{
		{"allow", limitertest.Allow(), 200, 200, "", "4", 200},
		{"deny a rule", limitertest.Deny("login", 90*time.Second), 200, 429, "90", "0", 429},
		{"deny a rule that is not asked", limitertest.Deny("other", time.Second), 200, 200, "", "4", 200},
		{"deny all", limitertest.Deny("", time.Second), 429, 429, "1", "0", 429},
		{"fail", limitertest.Fail(errors.New("away")), 200, 503, "1", "", 200},
		{"fail without a reason", limitertest.Fail(nil), 200, 503, "1", "", 200},
	} {
		for range 2 {
			for path, want := range map[string]int{"/": c.root, "/login": c.login} {
				w := httptest.NewRecorder()
				appWith(c.limiter).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
				if w.Code != want {
					t.Errorf("%s: %s: %d, want %d", c.name, path, w.Code, want)
				}
				if path == "/login" && (w.Header().Get("Retry-After") != c.retryAfter || w.Header().Get("X-RateLimit-Remaining") != c.remaining) {
					t.Errorf("%s: %v", c.name, w.Header())
				}
			}
		}
		guard := &failmode.Guard{Limiter: c.limiter, Logger: slog.New(slog.DiscardHandler)}
		w := httptest.NewRecorder()
		appWith(guard).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/login", nil))
		if w.Code != c.guardedStatus {
			t.Errorf("%s, guarded: %d, want %d", c.name, w.Code, c.guardedStatus)
		}
		if err := guard.Close(); err != nil {
			t.Error(err)
		}
	}
}
