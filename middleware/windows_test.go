package middleware_test

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/headers"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// plan is a rule of several windows.
func plan(limits ...algorithms.Limit) ratelimit.Rule {
	return ratelimit.Rule{Name: "plan", Key: keyfunc.IP, Limits: limits}
}

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// All windows have room, or nothing is charged. A request is one decision in metrics, in
// the log and in TopDenied.
func TestSeveralWindows(t *testing.T) {
	now, registry := noon, prometheus.NewRegistry()
	var log strings.Builder
	m := measured(t, registry, ratelimit.Config{
		Limiter: &algorithms.Memory{Now: func() time.Time { return now }}, Headers: headers.IETFDraft11,
		Rules: []ratelimit.Rule{plan(fixedIn(2, time.Minute), fixedIn(3, time.Hour), algorithms.PerMonth(4, "UTC"))}, DenialLogRate: 100,
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	h := m.Handler(ok)
	left := func() (all []int64) {
		d, err := m.Limiter().Peek(t.Context(), checksOf(t, m, "plan", "192.0.2.1")...)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range d.Results {
			all = append(all, r.Remaining)
		}
		return all
	}
	for _, c := range []struct {
		at       time.Time
		limit    string // RateLimit
		violated string
		left     []int64
	}{
		{noon, `"plan/1m";r=1;t=60`, "", []int64{1, 2, 3}},
		{noon, `"plan/1m";r=0;t=60`, "", []int64{0, 1, 2}},
		{noon, `"plan/1m";r=0;t=60`, `"plan/1m"`, []int64{0, 1, 2}},
		{noon.Add(time.Minute), `"plan/1h";r=0;t=3540`, "", []int64{1, 0, 1}},
		{noon.Add(time.Minute), `"plan/1h";r=0;t=3540`, `"plan/1h"`, []int64{1, 0, 1}},
		{noon.Add(time.Hour), `"plan/month@UTC";r=0;t=730800`, "", []int64{1, 2, 0}},
		{noon.Add(time.Hour), `"plan/month@UTC";r=0;t=730800`, `"plan/month@UTC"`, []int64{1, 2, 0}},
	} {
		now = c.at
		w := serve(h, "GET /")
		if (w.Code == http.StatusTooManyRequests) != (c.violated != "") || w.Header().Get("RateLimit") != c.limit || !strings.Contains(w.Body.String(), c.violated) {
			t.Errorf("%s: %d %v %s; want %s, violated %s", c.at, w.Code, w.Header(), w.Body, c.limit, c.violated)
		}
		if got := left(); !slices.Equal(got, c.left) {
			t.Errorf("%s: %v left, want %v", c.at, got, c.left)
		}
	}
	if n := strings.Count(log.String(), "ratelimit: denied"); n != 3 || strings.Count(log.String(), "limit=4/month@UTC") != 1 {
		t.Errorf("%d denials in the log:\n%s", n, &log)
	}
	if top := m.TopDenied(5); len(top) != 1 || top[0].Count != 3 {
		t.Errorf("%+v", top)
	}
	wantSamples(t, registry, map[string]float64{"decisions_total fixed_window allowed plan memory": 4, "decisions_total fixed_window denied plan memory": 3,
		"window_denials_total denied plan 1m": 1, "window_denials_total denied plan 1h": 1, "window_denials_total denied plan month@UTC": 1})

	if err := m.Limiter().Reset(t.Context(), checksOf(t, m, "plan", "192.0.2.1")...); err != nil {
		t.Fatal(err)
	}
	if got := left(); !slices.Equal(got, []int64{2, 3, 4}) {
		t.Errorf("after a reset %v are left", got)
	}
}

// A customer that is over its month is no attacker: it is denied, and never banned. What
// it does beyond its seconds is one denial, however many windows deny it.
func TestWindowsAndBans(t *testing.T) {
	now := noon
	rule := plan(fixedIn(2, time.Minute), fixedIn(4, time.Hour), algorithms.PerMonth(3, "UTC"))
	rule.Ban = ratelimit.Ban{After: 3, Within: time.Hour, For: 30 * time.Minute}
	m := mustNew(t, ratelimit.Config{Limiter: &algorithms.Memory{Now: func() time.Time { return now }}, Rules: []ratelimit.Rule{rule}})
	h := m.Handler(ok)
	requests := func(at time.Time, n int, want int) {
		t.Helper()
		now = at
		for range n {
			if w := serve(h, "GET /"); w.Code != want {
				t.Fatalf("%s: %d %s, want %d", at, w.Code, w.Body, want)
			}
		}
	}
	requests(noon, 2, http.StatusNoContent)
	requests(noon.Add(time.Minute), 1, http.StatusNoContent)
	for minute := range 50 {
		requests(noon.Add(time.Duration(minute+2)*time.Minute), 2, http.StatusTooManyRequests)
	}
	d, err := m.Peek(request("GET /"))
	if err != nil || d.Allowed || slices.ContainsFunc(d.Results, func(r algorithms.Result) bool { return r.BannedFor > 0 }) {
		t.Errorf("%+v %v", d, err)
	}

	december := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	requests(december, 2, http.StatusNoContent)
	requests(december, 2, http.StatusTooManyRequests) // two denials
	requests(december.Add(time.Minute), 1, http.StatusNoContent)
	requests(december.Add(2*time.Minute), 2, http.StatusTooManyRequests) // by the month
	requests(december.Add(time.Hour), 1, http.StatusTooManyRequests)
	requests(december.AddDate(0, 1, 0), 2, http.StatusNoContent)
	requests(december.AddDate(0, 1, 0), 3, http.StatusTooManyRequests)
	requests(december.AddDate(0, 1, 0).Add(29*time.Minute), 1, http.StatusTooManyRequests) // banned
	requests(december.AddDate(0, 1, 0).Add(30*time.Minute), 1, http.StatusNoContent)
}

// A request that a calendar window and another one deny is a strike, in whatever order they are.
func TestAStrikeByAnyWindow(t *testing.T) {
	minute, month := fixedIn(2, time.Minute), algorithms.PerMonth(2, "UTC")
	for _, rule := range []ratelimit.Rule{plan(minute, month), plan(month, minute)} {
		rule.Ban = ratelimit.Ban{After: 1, Within: time.Hour, For: 30 * time.Minute}
		m := mustNew(t, ratelimit.Config{Limiter: &algorithms.Memory{Now: func() time.Time { return noon }}, Rules: []ratelimit.Rule{rule}})
		times(3, m.Handler(ok), "GET /")
		d, err := m.Peek(request("GET /"))
		if err != nil || !slices.ContainsFunc(d.Results, func(r algorithms.Result) bool { return r.BannedFor == 30*time.Minute }) {
			t.Errorf("%v: %+v %v", rule, d, err)
		}
	}
}

// An upgrade keeps what was used, window by window; a customer without a window of the
// rule counts in those of its tier only.
func TestTiersOfSeveralWindows(t *testing.T) {
	rule := plan(fixedIn(9, time.Minute), algorithms.PerMonth(1000, "UTC"))
	rule.Tiers = map[string][]algorithms.Limit{
		"pro": {fixedIn(90, time.Minute), algorithms.PerMonth(100_000, "UTC")}, "daily": {algorithms.PerDay(50, "UTC")}, "internal": ratelimit.Unlimited(),
	}
	rule.LimitsFor = func(r *http.Request) []algorithms.Limit {
		if r.Header.Get("Over") != "" {
			return []algorithms.Limit{fixedIn(7, time.Minute), algorithms.PerMonth(7, "UTC")}
		}
		return nil
	}
	m := mustNew(t, ratelimit.Config{Limiter: &algorithms.Memory{Now: func() time.Time { return noon }}, Rules: []ratelimit.Rule{rule}, TierFor: byHeader})
	for _, c := range []struct{ tier, over, want string }{
		{"", "", "[8 999]"}, {"pro", "", "[88 99998]"}, {"daily", "", "[49]"}, {"internal", "", "[]"}, {"", "x", "[4 4]"},
	} {
		d, err := m.Take(request("GET /", "Tier", c.tier, "Over", c.over))
		left := make([]int64, len(d.Results))
		for i, r := range d.Results {
			left[i] = r.Remaining
		}
		if fmt.Sprint(left) != c.want || err != nil {
			t.Errorf("tier %q: %v left, want %s; %v", c.tier, left, c.want, err)
		}
	}
	if checks := checksOf(t, m, "plan", "192.0.2.1"); len(checks) != 3 {
		t.Errorf("%+v", checks)
	}
}

func fixedIn(n int64, period time.Duration) algorithms.Limit {
	return algorithms.Limit{Rate: n, Period: period, Algorithm: algorithms.FixedWindow}
}

// A Result of a rule is that of its window that matters most.
func TestResultOfSeveralWindows(t *testing.T) {
	m := mustNew(t, ratelimit.Config{Limiter: &algorithms.Memory{Now: func() time.Time { return noon }}, Rules: []ratelimit.Rule{
		plan(fixedIn(1, time.Minute), fixedIn(1, time.Hour), fixedIn(2, 24*time.Hour)),
	}})
	var seen []string
	h := m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		d, _ := ratelimit.FromContext(r.Context())
		res, _ := d.Result("plan")
		seen = append(seen, res.Check.Limit.String())
	}))
	h.ServeHTTP(httptest.NewRecorder(), request("GET /"))
	d, err := m.Take(request("GET /"))
	res, found := d.Result("plan")
	if seen = append(seen, res.Check.Limit.String()); err != nil || !found || !slices.Equal(seen, []string{"1/1h fixed_window", "1/1h fixed_window"}) {
		t.Errorf("%q %v", seen, err)
	}
	if _, found := d.Result("plans"); found {
		t.Error("a rule that is not there")
	}
}

// What is added and settled is so in all windows. A sliding window and a bucket of one period
// are two counts, also where their algorithms are left out.
func TestWindowsAreSettledTogether(t *testing.T) {
	hour := algorithms.Limit{Rate: 1000, Period: time.Hour}
	bucket := hour
	bucket.Burst = 1000
	for i, cost := range []int64{0, 5, 25, 30, 47, 0, 5, 25, 30, 47} {
		rule := plan(hour, bucket)
		if i >= 5 {
			rule = plan(fixedIn(1000, time.Minute), algorithms.PerMonth(1000, "UTC"))
		}
		rule.Cost = 10
		m := mustNew(t, ratelimit.Config{
			Limiter: &algorithms.Memory{Now: func() time.Time { return noon }}, Rules: []ratelimit.Rule{rule},
			Settled: func(_ *http.Request, d algorithms.Decision) {
				for i := range d.Results {
					if got := d.Results[i]; got.Charged != cost || got.Remaining != 1000-cost {
						t.Errorf("%s at %d: %d charged, %d left", got.Check.Limit, cost, got.Charged, got.Remaining)
					}
				}
			},
		})
		serve(m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if err := ratelimit.Add(r.Context(), "plan", 30); err != nil {
				t.Error("no room")
			}
			if err := ratelimit.Settle(r.Context(), "plan", cost); err != nil {
				t.Error(err)
			}
		})), "GET /")
		d, err := m.Peek(request("GET /"))
		if err != nil || d.Results[0].Remaining != 1000-cost || d.Results[1].Remaining != 1000-cost {
			t.Errorf("%+v %v", d, err)
		}
	}
}

// A denial is counted by the window that denies for the longest time, also from the deny
// cache. Rules that replace the rule count on.
func TestDenialsByWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		rule := plan(fixedIn(2, time.Minute), algorithms.PerMonth(3, "UTC"))
		rule.Ban = ratelimit.Ban{After: 3, Within: time.Hour, For: time.Hour}
		rule.LimitsFor = func(r *http.Request) []algorithms.Limit {
			if r.URL.Path == "/day" {
				return []algorithms.Limit{fixedIn(1, 24*time.Hour)}
			}
			return nil
		}
		plain := perHour("plain", 1000)
		m := measured(t, registry, ratelimit.Config{Limiter: guard(t, new(store), 1), Rules: []ratelimit.Rule{rule, plain}})
		h := m.Handler(ok)
		requests := func(line string, n int, minute, month, other, monthInShadow float64) {
			t.Helper()
			times(n, h, line)
			got, want := make(map[string]float64), map[string]float64{"denied plan 1m": minute, "denied plan month@UTC": month, "denied plan other": other, "shadow_denied plan month@UTC": monthInShadow}
			for name, n := range gather(t, registry) {
				if name, ok := strings.CutPrefix(name, "window_denials_total "); ok && n > 0 {
					got[name] = n
				}
			}
			maps.DeleteFunc(want, func(_ string, n float64) bool { return n == 0 })
			if !maps.Equal(got, want) {
				t.Errorf("%d times %s: %v, want %v", n, line, got, want)
			}
		}
		requests("GET /", 3, 1, 0, 0, 0)
		time.Sleep(time.Minute)
		requests("GET /", 3, 1, 2, 0, 0) // the second by the deny cache
		requests("GET /day", 2, 1, 2, 1, 0)
		requests("GET /day", 1, 1, 2, 2, 0) // begins a ban
		requests("GET /day", 1, 1, 2, 2, 0)
		rule.Shadow = true
		setRules(t, m, rule, plain)
		requests("GET /", 1, 1, 2, 2, 1)
	})
}
