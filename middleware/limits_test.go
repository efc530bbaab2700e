package middleware_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

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
