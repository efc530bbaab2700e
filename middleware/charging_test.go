package middleware_test

import (
	"net/http"
	"testing"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// failures is a rule that charges for 401 and 403.
func failures(rate int64) ratelimit.Rule {
	return ratelimit.Rule{Name: "login", Key: keyfunc.IP, Limit: algorithms.PerHour(rate), ChargeOn: []int{401, 403}}
}

// used is what a middleware's rule has counted for the address of httptest's requests.
func used(t testing.TB, l algorithms.Limiter, r ratelimit.Rule) int64 {
	t.Helper()
	d, err := l.Peek(t.Context(), algorithms.Check{Rule: r.Name, Key: "192.0.2.1", Limit: r.Limit})
	if err != nil {
		t.Fatal(err)
	}
	return r.Limit.Rate - d.Results[0].Remaining
}

// The fields are written once, before the handler runs: a refund shows in the next response.
func TestARefundChangesNoHeaders(t *testing.T) {
	login, all := failures(5), perHour("all", 90)
	memory := new(algorithms.Memory)
	m := mustNew(t, ratelimit.Config{Limiter: memory, Rules: []ratelimit.Rule{login, all}})
	outer := mustNew(t, ratelimit.Config{Limiter: memory, Rules: []ratelimit.Rule{perHour("outer", 3)}})
	answer := func(status int, before http.HandlerFunc) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			before(w, r)
			w.WriteHeader(status)
		})
	}
	nothing := func(http.ResponseWriter, *http.Request) {}
	own := func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-RateLimit-Remaining", "mine") }
	upstreams := func(_ http.ResponseWriter, r *http.Request) { // which are merged
		resp := &http.Response{Request: r, Header: http.Header{"X-Ratelimit-Limit": {"3"}, "X-Ratelimit-Remaining": {"1"}, "X-Ratelimit-Reset": {"60"}}}
		if err := ratelimit.ModifyResponse(resp); err != nil {
			t.Error(err)
		}
	}
	for i, c := range []struct {
		handler http.Handler
		want    string // remaining, of limit
	}{
		{m.Handler(answer(200, nothing)), "4 of 5"},
		{m.Handler(answer(401, nothing)), "4 of 5"},
		{m.Handler(answer(200, nothing)), "3 of 5"},
		{m.Handler(answer(200, own)), "mine of 5"},
		{outer.Handler(m.Handler(answer(200, nothing))), "2 of 3"},
		{m.Handler(outer.Handler(answer(200, nothing))), "1 of 3"},
		{m.Handler(answer(200, upstreams)), "1 of 3"},
		{tighter(m.Handler(answer(200, nothing))), "1 of 3"},
	} {
		w := serve(c.handler, "POST /login")
		if got := w.Header().Get("X-RateLimit-Remaining") + " of " + w.Header().Get("X-RateLimit-Limit"); got != c.want {
			t.Errorf("%d: %s, want %s", i, got, c.want)
		}
	}
}

// tighter is another limiter in front, which is not ours.
func tighter(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-RateLimit-Limit", "3")
		w.Header().Set("X-RateLimit-Remaining", "1")
		w.Header().Set("X-RateLimit-Reset", "60")
		next.ServeHTTP(w, r)
	})
}
