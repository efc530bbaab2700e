package hidden_test

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/hidden"
)

var at = time.UnixMicro(1_795_000_000_000_001)

func result(rule string, allowed bool) algorithms.Result {
	r := algorithms.Result{
		Check:      algorithms.Check{Rule: rule, Key: "alice@example.com", Limit: algorithms.PerMinute(5), Cost: 2},
		Source:     algorithms.SourceRedis,
		HasRoom:    allowed,
		Remaining:  3,
		ResetAfter: time.Minute,
		At:         at,
	}
	if !allowed {
		r.RetryAfter = 40 * time.Second
	}
	return r
}

func TestRedact(t *testing.T) {
	away := errors.New("connection refused")
	shadow, failOpen, failClosed := result("account", false), result("account", true), result("account", false)
	shadow.Check.Shadow = true
	failOpen.Err, failClosed.Err, failClosed.Source = away, away, algorithms.SourceFailClosed
	ip, denial := result("per-ip", true), algorithms.Result{Source: algorithms.SourceRedis, RetryAfter: 40 * time.Second, At: at, Err: hidden.Err}
	monthly, hourly := result("account", false), denial
	monthly.Check.Limit, monthly.RetryAfter, hourly.RetryAfter = algorithms.PerMonth(5, "UTC"), 500*time.Hour, time.Hour
	notCounted := denial
	notCounted.Source, notCounted.Err = algorithms.SourceFailClosed, away

	for name, c := range map[string]struct {
		results, want []algorithms.Result
	}{
		"no results":            {nil, nil},
		"nothing hidden":        {[]algorithms.Result{ip}, []algorithms.Result{ip}},
		"with room":             {[]algorithms.Result{result("account", true), ip}, []algorithms.Result{ip}},
		"only hidden":           {[]algorithms.Result{result("account", true)}, []algorithms.Result{}},
		"denied":                {[]algorithms.Result{ip, result("account", false)}, []algorithms.Result{ip, denial}},
		"denied for a month":    {[]algorithms.Result{monthly}, []algorithms.Result{hourly}},
		"denied in shadow":      {[]algorithms.Result{shadow, ip}, []algorithms.Result{ip}},
		"passed, not counted":   {[]algorithms.Result{failOpen, ip}, []algorithms.Result{ip}},
		"denied, not counted":   {[]algorithms.Result{failClosed, ip}, []algorithms.Result{notCounted, ip}},
		"one rule's two checks": {[]algorithms.Result{result("account", true), result("account", false)}, []algorithms.Result{denial}},
	} {
		t.Run(name, func(t *testing.T) {
			d := algorithms.Decision{Allowed: true, Results: c.results}
			for _, r := range c.results {
				d.Allowed = d.Allowed && (r.HasRoom || r.Check.Shadow)
			}
			before := append([]algorithms.Result(nil), c.results...)
			got := hidden.Redact(d, func(rule string) bool { return rule == "account" })
			if got.Allowed != d.Allowed || !reflect.DeepEqual(got.Results, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			if want := min(d.RetryAfter(), time.Hour); got.RetryAfter() != want {
				t.Errorf("RetryAfter %v, want %v", got.RetryAfter(), want)
			}
			if tightest, ok := got.Tightest(); ok && tightest.Check.Rule != "per-ip" {
				t.Errorf("the tightest is %+v", tightest)
			}
			if !reflect.DeepEqual(c.results, before) {
				t.Error("the decision was changed")
			}
		})
	}
}

func TestRedactAllocatesOnlyForHiddenRules(t *testing.T) {
	d := algorithms.Decision{Allowed: true, Results: []algorithms.Result{result("a", true), result("b", true)}}
	if n := testing.AllocsPerRun(100, func() { hidden.Redact(d, func(string) bool { return false }) }); n != 0 {
		t.Errorf("%g allocations", n)
	}
}
