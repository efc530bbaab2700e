package middleware_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// checked returns the checks that a request meets, by rule, as "limit cost" or
// "limit cost shadow".
func checked(t testing.TB, m *ratelimit.Middleware, r *http.Request) map[string]string {
	t.Helper()
	d, err := m.Peek(r)
	if err != nil {
		t.Fatal(err)
	}
	checks := make(map[string]string)
	for _, res := range d.Results {
		text := fmt.Sprintf("%s %d", res.Check.Limit, res.Check.Cost)
		if res.Check.Shadow {
			text += " shadow"
		}
		checks[res.Check.Rule] = text
	}
	return checks
}

func byHeader(r *http.Request) string { return r.Header.Get("Tier") }

func TestTiers(t *testing.T) {
	asked := 0
	registry := prometheus.NewRegistry()
	tiers := map[string][]algorithms.Limit{"pro": {algorithms.PerHour(50)}, "internal": ratelimit.Unlimited()}
	one, two := perHour("one", 5, "/tiers"), perHour("two", 7, "/tiers", "/more")
	one.Tiers, two.Tiers = tiers, tiers
	keyless := perHour("keyless", 9, "/keyless")
	keyless.Tiers, keyless.Key = tiers, keyfunc.Optional(keyfunc.Header("Nobody"))
	m := measured(t, registry, ratelimit.Config{
		Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{one, two, keyless, perHour("plain", 3, "/plain")},
		TierFor: func(r *http.Request) string { asked++; return byHeader(r) },
	})
	for _, c := range []struct {
		path, tier, want string
		asked            int
	}{
		{"/tiers", "", "map[one:5/1h 1 two:7/1h 1]", 1},
		{"/tiers", "pro", "map[one:50/1h 1 two:50/1h 1]", 1},
		{"/tiers", "internal", "map[]", 1},
		{"/tiers", "PRO", "map[one:5/1h 1 two:7/1h 1]", 1}, // unknown: never more than the rule's own
		{"/more", "pro", "map[two:50/1h 1]", 1},
		{"/plain", "pro", "map[plain:3/1h 1]", 0},
		{"/keyless", "pro", "map[]", 0},
		{"/none", "pro", "map[]", 0},
	} {
		asked = 0
		if got := fmt.Sprint(checked(t, m, request("GET "+c.path, "Tier", c.tier))); got != c.want || asked != c.asked {
			t.Errorf("%s of tier %q: %s, asked %d times; want %s, %d", c.path, c.tier, got, asked, c.want, c.asked)
		}
	}
	wantSamples(t, registry, map[string]float64{"unknown_tiers_total one": 0, "unknown_tiers_total two": 0}) // Peek counts nothing
	for range 3 {
		if _, err := m.Take(request("GET /tiers", "Tier", "gold")); err != nil {
			t.Fatal(err)
		}
	}
	wantSamples(t, registry, map[string]float64{"unknown_tiers_total one": 3, "unknown_tiers_total two": 3})

	// An exempt request is one that no rule applies to.
	w := serve(m.Handler(ok), "GET /tiers", "Tier", "internal")
	if w.Code != http.StatusNoContent || len(w.Header()) != 0 {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}

// A limit that cannot be used never means no limit.
func TestLimitsFor(t *testing.T) {
	var log bytes.Buffer
	var returns []algorithms.Limit
	rule := perHour("r", 5)
	rule.Tiers = map[string][]algorithms.Limit{"pro": {algorithms.PerHour(50)}}
	rule.LimitsFor = func(*http.Request) []algorithms.Limit { return returns }
	rule.Costs = map[string]int64{"/reports": 5}
	charged := rule
	charged.Name, charged.ChargeOn, charged.Cost = "charged", []int{401}, 5 // more than some limits hold
	asked := 0
	m := mustNew(t, ratelimit.Config{
		Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{rule, charged}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		TierFor: func(r *http.Request) string { asked++; return byHeader(r) },
	})
	for _, c := range []struct {
		returns []algorithms.Limit
		want    string
		asked   int
	}{
		{nil, "map[charged:50/1h 5 r:50/1h 1]", 1},
		{[]algorithms.Limit{algorithms.PerMinute(3)}, "map[charged:3/1m 5 r:3/1m 1]", 0},
		{ratelimit.Unlimited(), "map[]", 0},
		{[]algorithms.Limit{{Rate: 9, Period: time.Minute, Burst: 3}}, "map[charged:50/1h 5 r:9/1m burst 3 1]", 1}, // no window
		{[]algorithms.Limit{{Rate: -1, Period: time.Hour}}, "map[charged:50/1h 5 r:50/1h 1]", 1},                   // not quite Unlimited
		{[]algorithms.Limit{{}}, "map[charged:50/1h 5 r:50/1h 1]", 1},
		{[]algorithms.Limit{algorithms.PerMinute(3), algorithms.PerMinute(4)}, "map[charged:50/1h 5 r:50/1h 1]", 1}, // one count
		{[]algorithms.Limit{{Rate: 5}}, "map[charged:50/1h 5 r:50/1h 1]", 1},
		{[]algorithms.Limit{{Period: time.Hour}}, "map[charged:50/1h 5 r:50/1h 1]", 1},
		{[]algorithms.Limit{{Rate: 1, Period: 1, Algorithm: 99}}, "map[charged:50/1h 5 r:50/1h 1]", 1},
	} {
		returns, asked = c.returns, 0
		if got := fmt.Sprint(checked(t, m, request("GET /", "Tier", "pro"))); got != c.want || asked != c.asked {
			t.Errorf("%+v: %s, asked %d times; want %s, %d", c.returns, got, asked, c.want, c.asked)
		}
	}
	if n := strings.Count(log.String(), "LimitsFor returned limits that cannot be used"); n != 1 {
		t.Errorf("%d lines in less than a second, want 1:\n%s", n, &log)
	}
}

func TestCosts(t *testing.T) {
	rule := perHour("r", 100)
	rule.Cost = 5
	rule.Costs = map[string]int64{
		"POST /reports": 10, "/reports": 8, "/reports/{id}": 2, "GET /reports/{id}": 3, "GET /reports/big": 20,
		"/cheap": 1, "/static/": 1, "/static/{$}": 30, "/static/x/{y}": 7,
	}
	m := inMemory(t, rule)
	for line, want := range map[string]int{
		"GET /":                     5,
		"POST /reports":             10,
		"GET /reports":              8,
		"GET /reports/7":            3,
		"HEAD /reports/7":           3,
		"PUT /reports/7":            2,
		"GET /reports/big":          20,
		"GET /reports/b%69g":        20,
		"GET /static/a/b":           1,
		"GET /static/x/y":           7,
		"GET /static/":              30,
		"GET /cheap":                1,
		"POST /reports/":            10, // a slash makes nothing cheaper
		"GET /cheap/":               5,
		"GET /cheap//":              5,
		"GET /static/../":           5, // some router serves it as /
		"GET //cheap":               5,
		"GET /cheap/../admin":       5,
		"GET /cheap/%2e%2e/x":       5,
		"POST //reports":            10, // nor do other spellings
		"POST /cheap/../reports":    10,
		"POST /static/..%2Freports": 10,
		"POST /%72eports":           10,
	} {
		method, target, _ := strings.Cut(line, " ")
		r := httptest.NewRequest(method, target, nil)
		if got := checked(t, m, r)["r"]; got != fmt.Sprintf("100/1h %d", want) {
			t.Errorf("%s: %s, want %d", line, got, want)
		}
	}

	// A slash at the end must not have a general pattern, with a lower cost, apply.
	rule.Costs = map[string]int64{"/reports": 10, "/": 1}
	m = inMemory(t, rule)
	for path, want := range map[string]int{"/": 1, "/x": 1, "/reports": 10, "/reports/": 10, "//reports/": 10, "/reports/x": 1} {
		if got := checked(t, m, request("GET "+path))["r"]; got != fmt.Sprintf("100/1h %d", want) {
			t.Errorf("%s: %s, want %d", path, got, want)
		}
	}
}

// A cost that a client can choose is never a refund. TestFreeRequests has 0.
func TestCostFor(t *testing.T) {
	rule := perHour("r", 100)
	rule.Costs = map[string]int64{"/costly": 10}
	returns := int64(0)
	rule.CostFor = func(*http.Request) int64 { return returns }
	m := inMemory(t, rule)
	for _, c := range []struct{ returns, plain, costly int64 }{
		{-1, 1, 10}, {-1 << 63, 1, 10}, {3, 3, 3}, {100, 100, 100}, {101, 101, 101}, {1<<63 - 1, 1<<63 - 1, 1<<63 - 1},
	} {
		returns = c.returns
		for path, want := range map[string]int64{"/": c.plain, "/costly": c.costly} {
			d, err := m.Peek(request("GET " + path))
			if err != nil || d.Results[0].Check.Cost != want || d.Allowed != (want <= 100) {
				t.Errorf("%d at %s: %+v, %v", c.returns, path, d, err)
			}
			if want > 100 && d.RetryAfter() != algorithms.Never {
				t.Errorf("%d: retry after %s, want never", c.returns, d.RetryAfter())
			}
		}
	}
}

func TestTiersMayWait(t *testing.T) {
	rule := perHour("r", 5)
	rule.Tiers = map[string][]algorithms.Limit{"slow": {{Rate: 1, Period: time.Hour, Burst: 3, Algorithm: algorithms.LeakyBucket}}}
	m := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{rule}, TierFor: byHeader, MaxWaiting: 1})
	h := m.Handler(ok)
	serveWithin := func(d time.Duration) int {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		w := do(h, request("GET /", "Tier", "slow").WithContext(ctx))
		return w.Code
	}
	if one, two := serveWithin(time.Minute), serveWithin(time.Minute); one != http.StatusNoContent || two != http.StatusTooManyRequests {
		t.Errorf("%d, %d: the second cannot wait an hour", one, two)
	}
}

// A request has the limits of the client's override in force, or else those that LimitsFor
// returns, or else those of its tier, or else the rule's own, for a decision and for a
// QuotaHandler. What cannot be used never means no limit.
func TestLimitsOfARequest(t *testing.T) {
	limit := func(n int64) []algorithms.Limit { return []algorithms.Limit{algorithms.PerHour(n)} }
	unusable, ended := []algorithms.Limit{{Rate: 5}}, time.Now().Add(-time.Hour)
	overrides := map[string][]ratelimit.Override{
		"no override": nil, "override": {{Limits: limit(11)}}, "exempt": {{Limits: ratelimit.Unlimited()}},
		"override that has ended": {{Limits: limit(11), Until: ended}}, "exempt until long ago": {{Limits: ratelimit.Unlimited(), Until: ended}},
	}
	functions := map[string]func(*http.Request) []algorithms.Limit{
		"no LimitsFor":                nil,
		"LimitsFor":                   func(*http.Request) []algorithms.Limit { return limit(12) },
		"LimitsFor of nothing":        func(*http.Request) []algorithms.Limit { return nil },
		"LimitsFor, exempt":           func(*http.Request) []algorithms.Limit { return ratelimit.Unlimited() },
		"LimitsFor of what is no use": func(*http.Request) []algorithms.Limit { return unusable },
	}
	for by, override := range overrides {
		for function, f := range functions {
			for _, tier := range []string{"", "pro", "internal", "unknown"} {
				rule := perHour("r", 10)
				rule.Key, rule.LimitsFor = keyfunc.Header("User"), f
				rule.Tiers = map[string][]algorithms.Limit{"pro": limit(13), "internal": ratelimit.Unlimited()}
				for _, o := range override {
					o.Client = []string{"alice"}
					rule.Overrides = append(rule.Overrides, o)
				}
				m := mustNew(t, ratelimit.Config{TierFor: byHeader, Rules: []ratelimit.Rule{rule}, Logger: slog.New(slog.DiscardHandler)})
				for _, user := range []string{"alice", "bob"} {
					want := ""
					switch {
					case user == "alice" && by == "override":
						want = "11"
					case user == "alice" && by == "exempt", function == "LimitsFor, exempt":
					case function == "LimitsFor":
						want = "12"
					case tier == "pro":
						want = "13"
					case tier != "internal":
						want = "10"
					}
					name := fmt.Sprintf("%s, %s, tier %q, %s", by, function, tier, user)
					got := checked(t, m, request("GET /", "User", user, "Tier", tier))["r"]
					if got, _, _ := strings.Cut(got, "/"); got != want {
						t.Errorf("%s: %s, want %s", name, got, want)
					}
					shown, _ := io.ReadAll(serve(m.QuotaHandler(), "GET /", "User", user, "Tier", tier).Body)
					if strings.Contains(string(shown), `"limit":`) != (want != "") || !strings.Contains(string(shown), fmt.Sprintf(`"limit":%s,`, want)) && want != "" {
						t.Errorf("%s: QuotaHandler shows %s, want %s", name, shown, want)
					}
				}
			}
		}
	}
}
