package middleware_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/headers"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// byModel is a rule with a limit for each model.
func byModel(tiers map[string][]algorithms.Limit) ratelimit.Rule {
	r := perHour("input", 2)
	r.Key, r.TierBy, r.Tiers = keyfunc.Header("User"), keyfunc.Header("Model"), tiers
	return r
}

func hourly(n int64) []algorithms.Limit { return []algorithms.Limit{algorithms.PerHour(n)} }

// What is listed counts apart, and all else shares one count, so that nobody gains by
// making up names or by spelling the limit of another plan.
func TestTierBy(t *testing.T) {
	for name, limiter := range limiters {
		t.Run(name, func(t *testing.T) {
			m := mustNew(t, ratelimit.Config{Limiter: limiter(t), TierFor: byHeader, Headers: headers.IETFDraft11, Rules: []ratelimit.Rule{byModel(map[string][]algorithms.Limit{
				"large": hourly(3), "small": hourly(5), "pro/large": hourly(4), "a/b/c": hourly(100), "a/": hourly(9), "internal/large": ratelimit.Unlimited(),
			})}})
			app := m.Handler(ok)
			for i, step := range []struct {
				plan, model string
				status      int
				left        string
			}{
				{"", "large", 204, `"input/large";r=2`}, {"", "large", 204, `"input/large";r=1`}, {"", "large", 204, `"input/large";r=0`}, {"", "large", 429, `"input/large";r=0`},
				{"", "small", 204, `"input/small";r=4`}, // not used up by the other model
				{"", "made-up-1", 204, `"input";r=1`}, {"", "made-up-2", 204, `"input";r=0`}, {"", "made-up-3", 429, `"input";r=0`}, {"", "", 429, `"input";r=0`},
				{"", "LARGE", 429, `"input";r=0`},
				{"", "pro/large", 429, `"input";r=0`}, {"free", "pro/large", 429, `"input";r=0`}, // pro's limit by name
				{"a", "b/c", 204, `"input/b/c";r=99`}, {"a/b", "c", 429, `"input";r=0`},
				{"pro", "large", 204, `"input/large";r=0`}, {"pro", "large", 429, `"input/large";r=0`}, // an upgrade keeps what was used
				{"pro", "small", 204, `"input/small";r=3`},
				{"internal", "large", 204, ""},
			} {
				w := serve(app, "GET /", "User", "alice", "Tier", step.plan, "Model", step.model)
				if got := w.Header().Get("RateLimit"); w.Code != step.status || !strings.HasPrefix(got, step.left) || step.left == "" && got != "" {
					t.Errorf("%d: %s %s: %d %s; want %d %s", i, step.plan, step.model, w.Code, got, step.status, step.left)
				}
			}
			var seen struct {
				Limits []struct {
					Name, Tier string
					Remaining  int64
				}
			}
			if err := json.Unmarshal(serve(m.QuotaHandler(), "GET /", "User", "alice", "Tier", "pro").Body.Bytes(), &seen); err != nil ||
				fmt.Sprint(seen.Limits) != "[{input  0} {input large 0} {input small 3}]" {
				t.Errorf("limits: %+v, %v", seen, err)
			}
			// An operator sees and forgets all counts.
			checks, err := m.Checks("input", "alice")
			if err != nil || len(checks) != 5 { // with "a/", which no request has
				t.Fatalf("%+v, %v", checks, err)
			}
			if err := m.Limiter().Reset(t.Context(), checks...); err != nil {
				t.Fatal(err)
			}
			for _, model := range []string{"large", "small", "x"} {
				if w := serve(app, "GET /", "User", "alice", "Model", model); w.Code != 204 {
					t.Errorf("%s after a reset: %d", model, w.Code)
				}
			}
		})
	}
}

// A TierBy that reads the body is resolved last, gives the handler the whole body, and
// has the errors of a Key.
func TestTierByOfTheBody(t *testing.T) {
	tiers := map[string][]algorithms.Limit{"large": hourly(2)}
	open, strict := byModel(tiers), byModel(tiers)
	open.Key, open.TierBy = keyfunc.IP, keyfunc.BodyJSON("/params/name", 256)
	strict.Name, strict.Key, strict.TierBy = "strict", keyfunc.IP, keyfunc.Required(keyfunc.BodyJSON("/params/name", 256), http.StatusBadRequest)
	for _, tc := range []struct {
		rule ratelimit.Rule
		body string
		want []int
	}{
		{open, `{"params":{"name":"Large"}}`, []int{204, 204, 429}},
		{open, `{"params":{"name":"Small"}}`, []int{204, 204, 429}}, // unlisted
		{open, `{"params":null}`, []int{204, 204, 429}},
		// A client must not leave its tier by what only the handler can read.
		{open, `[{"params":{"name":"large"}}]`, []int{400}}, // a batch
		{open, `{"params":{"name":"x","name":"large"}}`, []int{400}},
		{open, `{"params":{},"params":{"name":"large"}}`, []int{400}},
		{open, `{}{"params":{"name":"large"}}`, []int{400}},
		{open, `{"params":{"name":"l\u200barge"}}`, []int{400}},
		{open, `{"params":{"name":"large"}}` + strings.Repeat(" ", 300), []int{400}},
		{strict, `{"params":null}`, []int{400}},
		{strict, `{"params":{"name":"large"}}`, []int{204, 204, 429}},
		{strict, `{"params":{"name":"x","name":"large"}}`, []int{400}},
	} {
		app := inMemory(t, tc.rule).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var all any
			if json.NewDecoder(r.Body).Decode(&all) == nil {
				w.WriteHeader(http.StatusNoContent)
			}
		}))
		for i, want := range tc.want {
			w := httptest.NewRecorder()
			app.ServeHTTP(w, post("/", "application/json", tc.body))
			if w.Code != want {
				t.Errorf("%s, request %d: %d, want %d", tc.body, i, w.Code, want)
			}
		}
	}
	app := inMemory(t, open).Handler(http.NotFoundHandler())
	for target, contentType := range map[string]string{"/?name=x": "application/json", "/?params.name=x": "application/json", "/": "text/plain", "/x": "", "/y": "application/x-www-form-urlencoded", "/z": "image/png"} {
		w := httptest.NewRecorder()
		app.ServeHTTP(w, post(target, contentType, `{"params":{"name":"large"}}`))
		if w.Code != http.StatusBadRequest {
			t.Errorf("%s of %q: %d, want 400", target, contentType, w.Code)
		}
	}
}

// In an outage a process counts tiers and overrides apart, too, and requests wait in them.
func TestTiersAndOverridesInOutagesAndQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tiered := byModel(map[string][]algorithms.Limit{"large": hourly(3)})
		one := perHour("one", 1)
		one.Overrides = []ratelimit.Override{override(algorithms.Limit{Rate: 1, Period: time.Second, Burst: 2, Algorithm: algorithms.LeakyBucket}, "192.0.2.1")}
		guard := &failmode.Guard{Limiter: new(failing)}
		defer guard.Close()
		m := mustNew(t, ratelimit.Config{Limiter: guard, Rules: []ratelimit.Rule{tiered, one}})
		begun := time.Now()
		for i, want := range []int{204, 204, 204, 429} {
			if got := serve(m.Handler(ok), "GET /", "User", "alice", "Model", "large").Code; got != want {
				t.Errorf("request %d: %d, want %d", i, got, want)
			}
		}
		if got := serve(m.Handler(ok), "GET /", "User", "alice", "Model", "x").Code; got != 204 {
			t.Errorf("another model: %d", got)
		}
		if waited := time.Since(begun); waited != 3*time.Second {
			t.Errorf("waited for %s", waited)
		}
	})
}
