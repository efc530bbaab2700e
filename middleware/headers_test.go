package middleware_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/headers"
	"github.com/seed75154129/ratelimit/internal/rated"
	"github.com/seed75154129/ratelimit/internal/step"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

var bothFields = headers.All(headers.XRateLimit, headers.IETFDraft11)

func inMemory(t testing.TB, rules ...ratelimit.Rule) *ratelimit.Middleware {
	t.Helper()
	return mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: rules, Headers: bothFields})
}

// The end of a month is told exactly, but for Retry-After. In October, Berlin's months
// begin two hours before UTC's.
func TestAMonthIsToldExactly(t *testing.T) {
	ends := time.Date(2026, 10, 31, 23, 0, 0, 0, time.UTC)
	now := ends.Add(-400 * time.Hour)
	rule := ratelimit.Rule{Name: "plan", Key: keyfunc.IP, Limit: algorithms.PerMonth(2, "Europe/Berlin")}
	memory := &algorithms.Memory{Now: func() time.Time { return now }}
	var log strings.Builder
	h := mustNew(t, ratelimit.Config{
		Limiter: memory, Rules: []ratelimit.Rule{rule}, Headers: bothFields, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	}).Handler(ok)
	fields := func(w *httptest.ResponseRecorder) string {
		return strings.TrimSpace(fmt.Sprintln(w.Code, w.Header().Get("X-RateLimit-Remaining"), w.Header().Get("X-RateLimit-Reset"),
			w.Header().Get("RateLimit-Policy"), w.Header().Get("RateLimit"), w.Header().Get("Retry-After")))
	}
	for _, c := range []struct {
		at   time.Time
		want string
	}{
		{now, `204 1 1793487600 "plan";q=2 "plan";r=1;t=1440000`},
		{now, `204 0 1793487600 "plan";q=2 "plan";r=0;t=1440000`},
		{now, `429 0 1793487600 "plan";q=2 "plan";r=0;t=1440000 3600`},
		{ends.Add(-time.Minute), `429 0 1793487600 "plan";q=2 "plan";r=0;t=60 60`},
		{ends, `204 1 1796079600 "plan";q=2 "plan";r=1;t=2592000`},
	} {
		now = c.at
		w := serve(h, "GET /")
		if got := fields(w); got != c.want {
			t.Errorf("%s: got  %s\nwant %s", c.at, got, c.want)
		}
		if body := w.Body.String(); w.Code == http.StatusTooManyRequests && !strings.Contains(body, `,"resets_at":"2026-10-31T23:00:00Z",`) {
			t.Error(body)
		}
	}
	if !strings.Contains(log.String(), "algorithm=calendar_window") {
		t.Error(log.String())
	}
}

func TestLimitersInAChainShowTheTighter(t *testing.T) {
	wide, strict := perHour("wide", 100), perHour("strict", 2, "GET /strict")
	for name, order := range map[string][2]ratelimit.Rule{
		"strict inside":  {wide, strict},
		"strict outside": {strict, wide},
	} {
		t.Run(name, func(t *testing.T) {
			h := inMemory(t, order[0]).Handler(inMemory(t, order[1]).Handler(ok))
			for _, want := range []string{"1", "0"} {
				w := serve(h, "GET /strict")
				if got := w.Header()["X-Ratelimit-Remaining"]; w.Code != http.StatusNoContent || !slices.Equal(got, []string{want}) {
					t.Errorf("%d, remaining %q, want %s", w.Code, got, want)
				}
				for _, field := range []string{"Ratelimit", "Ratelimit-Policy"} {
					lines := w.Header()[field]
					if len(lines) != 1 || strings.Count(lines[0], `"wide"`) != 1 || strings.Count(lines[0], `"strict"`) != 1 {
						t.Errorf("%s: %q", field, lines)
					}
				}
			}
			w := serve(h, "GET /strict")
			if w.Code != http.StatusTooManyRequests || w.Header().Get("RateLimit-Policy") != `"strict";q=2;w=3600` || len(w.Header()["Retry-After"]) != 1 {
				t.Errorf("denied: %d %v", w.Code, w.Header())
			}
			w = serve(h, "GET /other")
			if got := w.Header().Get("RateLimit-Policy"); got != `"wide";q=100;w=3600` {
				t.Errorf("where only one applies: %s", got)
			}
		})
	}
}

func TestJitterIsInTheRetryAfterOfDenials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mustNew(t, ratelimit.Config{
			Limiter: new(algorithms.Memory),
			Rules:   []ratelimit.Rule{{Name: "r", Key: keyfunc.IP, Limit: algorithms.Limit{Rate: 1, Period: time.Minute, Algorithm: algorithms.FixedWindow}}},
			Headers: headers.Jitter(time.Minute, headers.IETFDraft11),
		})
		h := m.Handler(ok)
		serve(h, "GET /")
		seen := map[string]bool{}
		for range 100 {
			w := serve(h, "GET /")
			retry := w.Header().Get("Retry-After")
			seconds, err := strconv.Atoi(retry)
			if err != nil || seconds < 60 || seconds > 120 || w.Header().Get("RateLimit") != `"r";r=0;t=`+retry || !strings.Contains(w.Body.String(), "in "+retry+" s") {
				t.Fatalf("%v\n%s", w.Header(), w.Body)
			}
			seen[retry] = true
		}
		if len(seen) < 5 {
			t.Errorf("100 denials, and only %v", seen)
		}
	})
}

// TestClientsThatWaitAreAdmitted is about whole responses: the rules are random,
// and a client that is denied waits as long as Retry-After says.
func TestClientsThatWaitAreAdmitted(t *testing.T) {
	unqueued := rated.Without(func(row step.Row) bool { return row.Queue })
	rapid.Check(t, func(rt *rapid.T) {
		var rules []ratelimit.Rule
		for i := range rapid.IntRange(1, 3).Draw(rt, "rules") {
			l := algorithms.Limit{
				Rate:      rapid.Int64Range(1, 5).Draw(rt, "rate"),
				Period:    time.Duration(rapid.Int64Range(10_000, 9_000_000).Draw(rt, "period µs")) * time.Microsecond,
				Algorithm: algorithms.Algorithm(rapid.SampledFrom(unqueued).Draw(rt, "algorithm").Number),
			}
			rules = append(rules, ratelimit.Rule{Name: fmt.Sprint("r", i), Key: keyfunc.IP, Limit: l})
		}
		pauses := rapid.SliceOfN(rapid.Int64Range(0, 300_000), 1, 20).Draw(rt, "pauses µs")
		var wrong string
		synctest.Test(t, func(t *testing.T) { wrong = waitAsTold(inMemory(t, rules...).Handler(ok), pauses) })
		if wrong != "" {
			rt.Fatal(wrong)
		}
	})
}

func waitAsTold(h http.Handler, pauses []int64) (wrong string) {
	for _, pause := range pauses {
		time.Sleep(time.Duration(pause) * time.Microsecond)
		w := serve(h, "GET /")
		if w.Code == http.StatusNoContent {
			continue
		}
		seconds, err := strconv.Atoi(w.Header().Get("Retry-After"))
		if err != nil || seconds < 1 {
			return fmt.Sprintf("%d %v", w.Code, w.Header())
		}
		time.Sleep(time.Duration(seconds) * time.Second)
		if w := serve(h, "GET /"); w.Code != http.StatusNoContent {
			return fmt.Sprintf("after %d s: %d %v", seconds, w.Code, w.Header())
		}
	}
	return ""
}

func TestTheResponseWriterIsTheServersOwn(t *testing.T) {
	w := httptest.NewRecorder()
	inMemory(t, perHour("r", 1)).Handler(http.HandlerFunc(func(got http.ResponseWriter, _ *http.Request) {
		if got != w {
			t.Errorf("got a %T", got)
		}
	})).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
}
