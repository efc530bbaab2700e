package browser

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
	"github.com/seed75154129/ratelimit/middleware/admin"
)

// operatorsPath is where the operators' page is; its pages are among the others.
const operatorsPath = "/ratelimit/"

// serveOperators serves an operators' page that has everything to show.
func serveOperators() (address string, end func(), err error) {
	user := keyfunc.Header("X-User")
	windows := make([]algorithms.Limit, 8)
	for i := range windows {
		windows[i] = algorithms.Limit{Rate: 1000 * int64(i+1), Period: time.Duration(i+1) * time.Hour}
	}
	windows[7] = algorithms.Limit{Rate: 1_000_000, Calendar: "month@America/Argentina/Buenos_Aires"}
	overrides := []ratelimit.Override{
		{Client: []string{"alice"}, Limits: []algorithms.Limit{algorithms.PerMinute(20000)}, Note: "OPS-4711, a ticket with a rather long text that somebody wrote in a hurry", Until: time.Now().AddDate(1, 0, 0)},
		{Client: []string{"bob"}, Limits: ratelimit.Unlimited(), Until: time.Now().AddDate(-1, 0, 0)},
	}
	for i := range 23 {
		overrides = append(overrides, ratelimit.Override{Client: []string{fmt.Sprint("customer-", i)}, Limits: []algorithms.Limit{algorithms.PerMinute(90)}})
	}
	rules := []ratelimit.Rule{
		{Name: "per-ip", Key: keyfunc.IP, Limit: algorithms.PerMinute(200), Fail: failmode.Open},
		{Name: "login", Match: []string{"POST /auth/login", "POST /auth/register", "POST /auth/reset-password"}, Key: keyfunc.IP, Limit: algorithms.Limit{Rate: 5, Period: time.Minute, Algorithm: algorithms.SlidingLog},
			ChargeOn: []int{401, 403}, Fail: failmode.Closed, Hidden: true, Ban: ratelimit.Ban{After: 10, Within: 10 * time.Minute, For: 15 * time.Minute}},
		{Name: "plan", Key: user, Overrides: overrides, Limit: algorithms.PerMinute(60), Costs: map[string]int64{"POST /reports": 10, "GET /export/{format}": 10},
			Tiers: map[string][]algorithms.Limit{"pro": {algorithms.PerMinute(1000)}, "enterprise": {{Rate: 10000, Period: time.Minute, Burst: 20000}}, "internal": ratelimit.Unlimited(), "a-tier-with-a-name-of-thirty-l": {algorithms.PerMinute(50)}}},
		{Name: "exports-of-a-tenant-with-a-rather-long-name-in-the-rule-file", Match: []string{"GET /export/{format}"}, Key: keyfunc.Join(user, keyfunc.IP), Limit: algorithms.PerHour(20), Shadow: true, Enforce: 0.1},
		{Name: "uploads", Match: []string{"PUT /files/{path...}"}, Key: keyfunc.IP, Limit: algorithms.MaxInFlight(2), Shadow: true},
		{Name: "queries", Match: []string{"POST /queries"}, Key: user, Limits: []algorithms.Limit{algorithms.PerMinute(1000), {Rate: 30, Calendar: "month@America/Argentina/Buenos_Aires"}},
			Overrides: []ratelimit.Override{{Client: []string{"alice"}, Limits: []algorithms.Limit{algorithms.PerMinute(20000), {Rate: 30, Calendar: "month@America/Argentina/Buenos_Aires"}}, Note: "OPS-4711"}}},
		{Name: "reports", Match: []string{"POST /queries"}, Key: user, Limit: algorithms.MaxInFlight(3), Tiers: map[string][]algorithms.Limit{"pro": {algorithms.MaxInFlight(30)}}},
		{Name: "windows", Match: []string{"POST /messages"}, Key: user, Limits: windows, Ban: ratelimit.Ban{After: 1, Within: time.Hour, For: 40 * 24 * time.Hour}},
		{Name: "everybody", Match: []string{"/messages"}, Key: keyfunc.Everyone, Limit: algorithms.PerMinute(100000)},
		{Name: "abuse", Match: []string{"POST /messages"}, Key: user, Limit: algorithms.PerMinute(10), Ban: ratelimit.Ban{After: 3, For: 24 * time.Hour}},
	}
	limit, err := ratelimit.New(ratelimit.Config{Limiter: new(algorithms.Memory), Rules: rules, LogKeys: true, Logger: slog.New(slog.DiscardHandler),
		TierFor: func(*http.Request) string { return "" }})
	if err != nil {
		return "", nil, err
	}
	if err := limit.SetRulesVersion(rules, 7); err != nil {
		return "", nil, err
	}
	limit.RulesFailed(errors.New("rules.yaml:7:12: rules[0].limit: limit \"5-S\": no period; write it as \"100/1m\", \"10/s burst 20\" or \"5/1m fixed_window\"\n" +
		"rules.yaml:9:13: rules[0].shadow: must be true or false, without quotes, got \"90%\""))
	running, ended := make(chan bool), make(chan bool)
	handler := limit.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Slow") != "" {
			running <- true
			<-ended
		}
	}))
	for i := range 20 { // the whole quota, and the last two stay in flight
		r := httptest.NewRequest(http.MethodPost, "/queries", nil)
		r.Header.Set("X-User", "alice")
		if i < 18 {
			handler.ServeHTTP(httptest.NewRecorder(), r)
			continue
		}
		r.Header.Set("Slow", "yes")
		go handler.ServeHTTP(httptest.NewRecorder(), r)
		<-running
	}
	for i, name := range []string{"alice", "bob", hostile, strings.Repeat("a-very-long-user-name-", 5), "\u202eloraC", "dave", "erin", "frank", "grace", "heidi", "ivan", strings.Repeat("very-long-", 99)} {
		for range 30 - i {
			r := httptest.NewRequest(http.MethodPost, "/messages", nil)
			r.Header.Set("X-User", name)
			r.RemoteAddr = fmt.Sprintf("[2001:db8:85a3:%x::1]:4711", 0x8d3+i/6)
			handler.ServeHTTP(httptest.NewRecorder(), r)
		}
	}
	mux := http.NewServeMux()
	mux.Handle(operatorsPath, admin.Handler(limit))
	server := httptest.NewServer(mux)
	end = func() { close(ended); server.Close() }
	r, err := http.PostForm(server.URL+operatorsPath, url.Values{"action": {"ban"}, "for": {"24h"}, "rule": {"login"}, "value": {"203.0.113.9"}})
	if err != nil {
		end()
		return "", nil, err
	}
	_, _ = io.Copy(io.Discard, r.Body)
	return server.URL, end, r.Body.Close()
}
