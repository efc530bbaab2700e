package middleware_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// A client sees what it has left, and neither what is hidden nor what others use.
func TestQuotaHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		with := func(name string, change func(*ratelimit.Rule)) ratelimit.Rule {
			r := perHour(name, 7)
			r.Key = keyfunc.Header("User")
			change(&r)
			return r
		}
		routes := http.NewServeMux()
		routes.Handle("GET /rate_limit", ok)
		m := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), TierFor: byHeader, Rules: []ratelimit.Rule{
			with("search", func(r *ratelimit.Rule) {
				r.Match, r.Tiers = []string{"GET /search"}, map[string][]algorithms.Limit{"pro": {algorithms.PerMinute(30), algorithms.PerMonth(100, "UTC")}}
			}),
			with("running", func(r *ratelimit.Rule) { r.Limit, r.Match = algorithms.MaxInFlight(3), []string{"GET /jobs"} }),
			with("banned", func(r *ratelimit.Rule) {
				r.Limit, r.Match, r.Ban = algorithms.PerSecond(9), []string{"GET /banned"}, ratelimit.Ban{After: 100, For: time.Hour}
			}),
			with("tenth", func(r *ratelimit.Rule) { r.Shadow, r.Enforce = true, 1; r.Cost = 2 }),
			with("bucket", func(r *ratelimit.Rule) {
				r.Limit, r.Match = algorithms.Limit{Rate: 60_000, Period: time.Minute, Burst: 20_000, Algorithm: algorithms.TokenBucket}, []string{"GET /search"}
			}),
			with("hidden", func(r *ratelimit.Rule) { r.Hidden = true }),
			with("shadow", func(r *ratelimit.Rule) { r.Shadow = true }),
			with("exempt", func(r *ratelimit.Rule) { r.Tiers = map[string][]algorithms.Limit{"pro": ratelimit.Unlimited()} }),
			with("body", func(r *ratelimit.Rule) { r.Key = keyfunc.BodyJSON("email", 64) }),
			with("route", func(r *ratelimit.Rule) { r.Key = keyfunc.Route(func(r *http.Request) string { return r.URL.Path }) }),
			with("mux", func(r *ratelimit.Rule) { r.Key = keyfunc.Join(keyfunc.Header("User"), keyfunc.Mux(routes)) }),
			with("keyless", func(r *ratelimit.Rule) { r.Key = keyfunc.Header("Nobody") }),
			with("skipped", func(r *ratelimit.Rule) { r.Key = keyfunc.Optional(keyfunc.Header("Nobody")) }),
			with("refused", func(r *ratelimit.Rule) {
				r.Key, r.Match = keyfunc.Required(keyfunc.Header("Nobody"), 401), []string{"/other"}
			}),
			with("broken", func(r *ratelimit.Rule) {
				r.Key, r.Match = keyfunc.Func(func(*http.Request) (string, error) { return "", errors.New("away") }), []string{"/other"}
			}),
		}})
		app, limits := m.Handler(ok), m.QuotaHandler()
		for range 2 {
			serve(app, "GET /search", "User", "alice", "Tier", "pro")
		}
		serve(app, "GET /search", "User", "bob", "Tier", "pro")
		if err := m.Ban(t.Context(), "banned", time.Hour, "alice"); err != nil {
			t.Fatal(err)
		}
		in := func(d time.Duration) string {
			return time.Now().Add(d).UTC().Truncate(time.Second).Format(time.RFC3339)
		}
		for range 2 { // it charges nothing
			w := serve(limits, "GET /rate_limit", "User", "alice", "Tier", "pro")
			want := `{"limits":[` + strings.Join([]string{
				`{"name":"search","window":"1m","limit":30,"remaining":28,"reset_after":120,"resets_at":"` + in(2*time.Minute) + `"}`,
				`{"name":"search","window":"month@UTC","limit":100,"remaining":98,"reset_after":2678400,"resets_at":"2000-02-01T00:00:00Z"}`,
				`{"name":"running","window":"in flight","limit":3,"remaining":3,"reset_after":0}`,
				`{"name":"banned","window":"1s","limit":9,"remaining":0,"reset_after":3600,"resets_at":"` + in(time.Hour) + `","retry_after":3600}`,
				`{"name":"tenth","window":"1h","limit":7,"remaining":3,"reset_after":7200,"resets_at":"` + in(2*time.Hour) + `"}`,
				`{"name":"bucket","window":"20s","limit":20000,"remaining":19998,"reset_after":0.002,"resets_at":"` + in(2*time.Millisecond) + `"}`,
			}, ",") + "]}\n"
			if got := w.Body.String(); got != want || w.Code != 200 || w.Header().Get("Content-Type") != "application/json" || w.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("%d %v\n got %s\nwant %s", w.Code, w.Header(), got, want)
			}
		}
		if w := serve(limits, "GET /rate_limit"); w.Body.String() != `{"limits":[]}`+"\n" {
			t.Errorf("without a key: %s", w.Body)
		}
	})
}

// The end of a window is that of the clock that counts, as in the headers.
func TestQuotasEndByTheClockThatCounts(t *testing.T) {
	rule := perHour("plan", 9)
	rule.Limit = algorithms.PerMonth(9, "UTC")
	for _, ahead := range []time.Duration{0, time.Microsecond, 2 * time.Millisecond, -2 * time.Millisecond, 100 * time.Hour, -time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			memory := &algorithms.Memory{Now: func() time.Time { return time.Now().Add(ahead) }}
			m := mustNew(t, ratelimit.Config{Limiter: memory, Rules: []ratelimit.Rule{rule}})
			serve(m.Handler(ok), "GET /")
			want := "2000-02-01T00:00:00Z"
			if ahead < 0 {
				want = "2000-01-01T00:00:00Z"
			}
			if got := serve(m.QuotaHandler(), "GET /").Body.String(); !strings.Contains(got, want) {
				t.Errorf("%s ahead: %s, want %s", ahead, got, want)
			}
		})
	}
}

// One cheap request must not look at any number of counts.
func TestQuotaHandlerAsksOnceAndAboutFew(t *testing.T) {
	var rules []ratelimit.Rule
	for i := range 70 {
		rules = append(rules, perHour(fmt.Sprintf("r%d", i), 5))
	}
	var log bytes.Buffer
	l := &hook{check: func(*algorithms.Check) { t.Error("charged") }}
	limits := mustNew(t, ratelimit.Config{Limiter: l, Rules: rules, Logger: slog.New(slog.NewTextHandler(&log, nil))}).QuotaHandler()
	for range 2 {
		w := serve(limits, "GET /rate_limit")
		if got := strings.Count(w.Body.String(), `"name"`); got != 64 || !strings.Contains(w.Body.String(), `"r63"`) {
			t.Errorf("%d limits: %s", got, w.Body)
		}
	}
	if l.peeks != 2 || l.checks != 2*64 {
		t.Errorf("%d calls with %d checks", l.peeks, l.checks)
	}
	if text := `QuotaHandler shows 64 limits, and leaves out the rest of rule \"r64\" and those after it`; strings.Count(log.String(), text) != 1 {
		t.Errorf("the log has not once %s:\n%s", text, &log)
	}
}

// What nobody has counted is not shown as used up, nor as unused.
func TestQuotasAreNotGuessed(t *testing.T) {
	peekless := &hook{peeked: func(*algorithms.Result) error { return errors.New("away") }}
	for _, mode := range []failmode.Mode{failmode.Open, failmode.Closed} {
		r := perHour("r", 5)
		r.Fail = mode
		m := mustNew(t, ratelimit.Config{Limiter: peekless, Rules: []ratelimit.Rule{r, perHour("s", 5)}})
		if w := serve(m.QuotaHandler(), "GET /rate_limit"); w.Code != http.StatusServiceUnavailable || strings.Contains(w.Body.String(), "remaining") {
			t.Errorf("%v: %d %s", mode, w.Code, w.Body)
		}
	}
}
