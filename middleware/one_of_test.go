package middleware_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/seed75154129/ratelimit/algorithms"
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
	m := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{rule}, TierFor: func(r *http.Request) string {
		name, _ := keyfunc.OneOf(model, "large", "small").Resolve(r)
		return strings.TrimSuffix(name, "other")
	}})
	admitted := func(body func(i int) string) (n int) {
		for i := range 10 {
			r := post("/", jsonType, body(i))
			r.Header.Set("User", "alice")
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
		if got := admitted(c.body); got != c.want {
			t.Errorf("%s: %d admitted, want %d", c.body(0), got, c.want)
		}
	}
}
