package middleware_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// full is a rule of which every field is set, so that none is forgotten.
func full(t *testing.T) ratelimit.Rule {
	rule := ratelimit.Rule{
		Name: "full", Match: []string{"GET /a", "/b/"}, Key: keyfunc.IP,
		Limits: []algorithms.Limit{algorithms.PerMinute(100), algorithms.PerMonth(10_000, "UTC")}, Tiers: map[string][]algorithms.Limit{"pro": {algorithms.PerMinute(1000)}, "internal": ratelimit.Unlimited()},
		LimitsFor: func(*http.Request) []algorithms.Limit { return nil },
		Overrides: []ratelimit.Override{{Client: []string{"192.0.2.1"}, Limits: []algorithms.Limit{algorithms.PerMinute(50)}, Until: time.Unix(1e9, 0), Note: "ticket"}},
		Cost:      2, Costs: map[string]int64{"GET /a": 3}, CostFor: func(*http.Request) int64 { return 0 },
		ChargeOn: []int{401, 403}, Ban: ratelimit.Ban{After: 10, Within: time.Minute, For: time.Hour},
		Fail: failmode.Closed, Shadow: true, Enforce: 0.5, Hidden: true, Note: "ask ops",
	}
	for v, i := reflect.ValueOf(rule), 0; i < v.NumField(); i++ {
		if name := v.Type().Field(i).Name; v.Field(i).IsZero() && name != "Sync" && name != "Limit" && name != "RetryAfter" { // which are refused
			t.Fatalf("%s is not set: set it here", name)
		}
	}
	return rule
}

// data is a rule without what cannot be compared.
func data(r ratelimit.Rule) ratelimit.Rule {
	r.LimitsFor, r.CostFor = nil, nil
	return r
}

func TestRulesAreACopy(t *testing.T) {
	given, want := full(t), full(t)
	m := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{given}})
	spoil := func(r *ratelimit.Rule) {
		r.Name, r.Match[0], r.Limits[0], r.Tiers["pro"][0], r.Costs["GET /a"], r.ChargeOn[0] = "x", "/x", algorithms.Limit{}, algorithms.Limit{}, 99, 500
		r.Overrides[0].Client[0], r.Overrides[0].Limits[0], r.Overrides[0].Note = "x", algorithms.Limit{}, "x"
	}
	spoil(&given)
	for range 2 {
		got := m.Rules()
		if len(got) != 1 || !reflect.DeepEqual(data(got[0]), data(want)) || got[0].LimitsFor == nil || got[0].CostFor == nil {
			t.Fatalf("%+v\nwant\n%+v", got, want)
		}
		spoil(&got[0])
	}

	if err := m.SetRules(nil); err == nil || m.Rules()[0].Name != "full" {
		t.Errorf("%v, and then %v", err, m.Rules())
	}
	setRules(t, m, perHour("a", 1), perHour("b", 2))
	if got := m.Rules(); len(got) != 2 || got[0].Name != "a" || got[1].Name != "b" || got[1].Limit.Rate != 2 {
		t.Errorf("%+v", got)
	}
}

func TestRulesThatFailAreLoggedOnceAndCounted(t *testing.T) {
	var log bytes.Buffer
	registry := prometheus.NewRegistry()
	m := measured(t, registry, ratelimit.Config{
		Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{perHour("r", 1)},
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	generation := 1.0
	want := func(step string, errors, failing float64, lines int) {
		t.Helper()
		wantSamples(t, registry, map[string]float64{"rules_errors_total": errors, "rules_failing": failing, "rules": 1, "rules_generation": generation})
		if got := m.RulesRevision(); got != uint64(generation+errors) {
			t.Errorf("%s: revision %d", step, got)
		}
		if got := strings.Count(log.String(), `level=ERROR msg="ratelimit: rules not replaced"`); got != lines {
			t.Errorf("%s: %d lines, want %d\n%s", step, got, lines, &log)
		}
	}
	want("at first", 0, 0, 0)
	m.RulesFailed(nil)
	want("no error", 0, 0, 0)
	m.RulesFailed(errors.New("rules.yaml:1:1: a\nrules.yaml:2:1: b"))
	want("an error", 1, 1, 1)
	if !strings.Contains(log.String(), `error="rules.yaml:1:1: a\nrules.yaml:2:1: b" generation=1`) {
		t.Error(log.String())
	}
	m.RulesFailed(errors.New("rules.yaml:1:1: a\nrules.yaml:2:1: b"))
	want("the same text", 2, 1, 1)
	m.RulesFailed(errors.New("rules.yaml: gone"))
	want("another text", 3, 1, 2)

	for i := range 2 {
		if err := m.SetRules(nil); err == nil {
			t.Error("no rules are accepted")
		}
		want("refused by SetRules", float64(4+i), 1, 3)
	}

	setRules(t, m, perHour("r", 2))
	generation++
	want("replaced", 5, 0, 3)
	m.RulesFailed(errors.New("rules.yaml: gone"))
	want("a text from before", 6, 1, 4)
}
