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
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// Made-up models give no client a new count, by whatever key it is joined with.
func TestMadeUpModels(t *testing.T) {
	model := keyfunc.BodyJSON("model", 1<<10)
	rule := perHour("model", 2)
	for _, client := range []keyfunc.Key{keyfunc.IP, keyfunc.Header("User")} {
		rule.Key = keyfunc.Join(client, model)
		if _, err := ratelimit.New(ratelimit.Config{Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{rule}}); err == nil || !strings.Contains(err.Error(), `rule "model": key: keyfunc: Join: made-up values of bodyjson:model`) {
			t.Errorf("%s: %v", client, err)
		}
	}
	rule.Key = keyfunc.Join(keyfunc.Header("User"), keyfunc.OneOf(model, "large", "small"))
	rule.Tiers = map[string][]algorithms.Limit{"large": {algorithms.PerHour(3)}, "small": {algorithms.PerHour(5)}}
	rule.Overrides = []ratelimit.Override{{Client: []string{"bob", "large"}, Limits: []algorithms.Limit{algorithms.PerHour(7)}}}
	m := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{rule}, TierFor: func(r *http.Request) string {
		name, _ := keyfunc.OneOf(model, "large", "small").Resolve(r)
		return strings.TrimSuffix(name, "other")
	}})
	admitted := func(user string, body func(i int) string) (n int) {
		for i := range 10 {
			r := post("/", jsonType, body(i))
			r.Header.Set("User", user)
			w := httptest.NewRecorder()
			if m.Handler(ok).ServeHTTP(w, r); w.Code == http.StatusNoContent {
				n++
			}
		}
		return n
	}
	always := func(body string) func(int) string { return func(int) string { return body } }
	for _, c := range []struct {
		body func(int) string
		want int
	}{
		{func(i int) string { return fmt.Sprintf(`{"model":"x%d"}`, i) }, 2},
		{func(i int) string { return fmt.Sprintf(`{"model":%d}`, i) }, 0}, // the same count, as all below but the two models
		{always(`{}`), 0}, {always(`{"model":null}`), 0}, {always(`{"model":"other"}`), 0}, {always(`{"model":"large","model":"x"}`), 0},
		{func(i int) string { return fmt.Sprintf(`{"model":%q}`, [...]string{"large", "LARGE", " large "}[i%3]) }, 3},
		{always(`{"model":"small"}`), 5},
	} {
		if got := admitted("alice", c.body); got != c.want {
			t.Errorf("%s: %d admitted, want %d", c.body(0), got, c.want)
		}
	}
	if large, small := admitted("bob", always(`{"model":"Large"}`)), admitted("bob", always(`{"model":"small"}`)); large != 7 || small != 5 {
		t.Errorf("%d and %d by an override of one model", large, small)
	}
}

// OneOf gives the handler the whole body, and refuses what only the handler can read.
func TestOneOfAFieldOfTheBody(t *testing.T) {
	open, strict := perHour("open", 2), perHour("strict", 2)
	open.Key = keyfunc.Join(keyfunc.IP, keyfunc.OneOf(keyfunc.BodyJSON("/params/name", 256), "large"))
	strict.Key = keyfunc.Join(keyfunc.IP, keyfunc.OneOf(keyfunc.Required(keyfunc.BodyJSON("/params/name", 256), http.StatusBadRequest), "large"))
	for _, tc := range []struct {
		rule ratelimit.Rule
		body string
		want []int
	}{
		{open, `{"params":{"name":"Large"}}`, []int{204, 204, 429}},
		{open, `{"params":{"name":"Small"}}`, []int{204, 204, 429}}, // unlisted
		{open, `{"params":null}`, []int{204, 204, 429}},
		// A client must not leave its count by what only the handler can read.
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

// In an outage a process counts models and overrides apart, too, and requests wait in them.
func TestTiersAndOverridesInOutagesAndQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tiered := perHour("tiered", 2)
		tiered.Key, tiered.Tiers = keyfunc.Join(keyfunc.Header("User"), keyfunc.OneOf(keyfunc.Header("Model"), "large")), map[string][]algorithms.Limit{"large": {algorithms.PerHour(3)}}
		one := perHour("one", 1)
		one.Overrides = []ratelimit.Override{override(algorithms.Limit{Rate: 1, Period: time.Second, Burst: 2, Algorithm: algorithms.LeakyBucket}, "192.0.2.1")}
		guard := &failmode.Guard{Limiter: new(failing)}
		defer guard.Close()
		m := mustNew(t, ratelimit.Config{Limiter: guard, TierFor: func(r *http.Request) string { return r.Header.Get("Model") }, Rules: []ratelimit.Rule{tiered, one}})
		begun := time.Now()
		for i, want := range []int{204, 204, 204, 429} {
			if got := serve(m.Handler(ok), "GET /", "User", "alice", "Model", "large").Code; got != want {
				t.Errorf("request %d: %d, want %d", i, got, want)
			}
		}
		if got := serve(m.Handler(ok), "GET /", "User", "alice", "Model", "").Code; got != 204 {
			t.Errorf("another model: %d", got)
		}
		if waited := time.Since(begun); waited != 3*time.Second {
			t.Errorf("waited for %s", waited)
		}
	})
}
