package middleware_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// Failures that other limiters have had without an error or a line in the log.
func TestSilentFailuresOfOthers(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		// Handlers end their streams themselves. The request after that is denied.
		"a stream is cut in its middle instead of a 429": func(t *testing.T) {
			m := inMemory(t, tokens(100, 40))
			server := httptest.NewServer(m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				for ratelimit.Add(r.Context(), "tokens", 30) == nil {
					fmt.Fprint(w, "more ")
					_ = http.NewResponseController(w).Flush()
				}
				fmt.Fprint(w, "enough")
			})))
			defer server.Close()
			for _, want := range []string{"200 more more more enough", "429 application/problem+json"} {
				resp, err := server.Client().Get(server.URL)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				got := fmt.Sprint(resp.StatusCode, " ", string(body))
				if resp.StatusCode == http.StatusTooManyRequests && json.Valid(body) {
					got = fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("Content-Type"))
				}
				if err != nil || got != want {
					t.Errorf("%s, %v; want %s", got, err, want)
				}
			}
		},
		"a cost is asked for although no limit applies": func(t *testing.T) {
			asked := 0
			rule := tokens(100, 0)
			rule.CostFor = func(*http.Request) int64 { asked++; return 1 }
			rule.Match = []string{"POST /chat"}
			rule.Tiers = map[string][]algorithms.Limit{"internal": ratelimit.Unlimited()}
			m := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{rule}, TierFor: byHeader, Skip: []string{"GET /health"}})
			for i, line := range []string{"GET /chat", "POST /", "GET /health", "POST /chat"} {
				serve(m.Handler(ok), line, "Tier", "internal")
				if asked > 0 {
					t.Errorf("%d: %s: asked", i, line)
				}
			}
			if serve(m.Handler(ok), "POST /chat"); asked != 1 {
				t.Errorf("asked %d times, want once", asked)
			}
		},
		"what one rule's window forgets is another's": func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				short, long := perHour("short", 5), perHour("long", 2, "POST /")
				short.Key, short.Limit.Period = keyfunc.Header("User"), time.Second
				h := mustNew(t, ratelimit.Config{Limiter: &algorithms.Memory{MaxKeys: 256}, Rules: []ratelimit.Rule{short, long}}).Handler(ok)
				times(2, h, "POST /", "User", "first")
				for i := range 3000 { // some keys at a time
					if code := serve(h, "GET /", "User", strconv.Itoa(i)).Code; code != http.StatusNoContent {
						t.Fatalf("user %d: %d", i, code)
					}
					time.Sleep(time.Second)
				}
				if code := serve(h, "POST /", "User", "last").Code; code != http.StatusTooManyRequests {
					t.Errorf("after 50 minutes: %d, want 429", code)
				}
			})
		},
	} {
		t.Run(name, test)
	}
}
