package middleware_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

func TestEveryMistakeInARuleIsARuleError(t *testing.T) {
	rules := []ratelimit.Rule{
		{Name: "ok", Key: keyfunc.IP, Limit: algorithms.PerMinute(5)},
		{Name: "login", Match: []string{"POST /auth/*", "/u/:id"}, Key: keyfunc.IP, Limit: algorithms.PerMinute(5), Cost: 6},
		{Limit: algorithms.Limit{Rate: 0, Period: -1}, Fail: 9},
		{Name: "ok", Key: keyfunc.IP, Limit: algorithms.PerMinute(5), Cost: -1},
	}
	want := []ratelimit.RuleError{
		{Index: 1, Rule: "login", Field: "Match"},
		{Index: 1, Rule: "login", Field: "Match"},
		{Index: 1, Rule: "login", Field: "Cost"},
		{Index: 2, Field: "Name"},
		{Index: 2, Field: "Key"},
		{Index: 2, Field: "Limit"},
		{Index: 2, Field: "Limit"},
		{Index: 2, Field: "Fail"},
		{Index: 3, Rule: "ok", Field: "Name"},
		{Index: 3, Rule: "ok", Field: "Cost"},
	}
	err := ratelimit.ValidateRules(rules)
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) != len(want) {
		t.Fatalf("want %d errors, got\n%v", len(want), err)
	}
	for i, err := range joined.Unwrap() {
		got, is := errors.AsType[*ratelimit.RuleError](err)
		if !is || got.Index != want[i].Index || got.Rule != want[i].Rule || got.Field != want[i].Field || got.Err == nil {
			t.Errorf("%d: %#v, want %+v", i, err, want[i])
			continue
		}
		where := `middleware: rule "` + got.Rule + `": `
		if got.Rule == "" {
			where = "middleware: rules[2]: "
		}
		if text := where + strings.ToLower(got.Field) + ": " + got.Err.Error(); err.Error() != text {
			t.Errorf("%q, want %q", err, text)
		}
		if !errors.Is(err, got.Err) {
			t.Errorf("does not wrap %v", got.Err)
		}
	}
	if err := ratelimit.ValidateRules(rules[:1]); err != nil {
		t.Error(err)
	}

	none := ratelimit.ValidateRules(nil)
	if got, is := errors.AsType[*ratelimit.RuleError](none); !is || got.Index != -1 || none.Error() != "middleware: rules: at least one is required" {
		t.Errorf("%#v", none)
	}
}

// Fields are spelled as Go does, and as words in the text.
func TestRuleErrorsSpellFieldsAsWords(t *testing.T) {
	err := &ratelimit.RuleError{Rule: "login", Field: "ChargeOn", Err: errors.New("boo")}
	if got := err.Error(); got != `middleware: rule "login": charge on: boo` {
		t.Error(got)
	}
}

// What cannot work says so where it is set up, not at the first request.
func TestMistakesInCodePanicWithAMessage(t *testing.T) {
	m := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{perHour("r", 1)}})
	var none *ratelimit.Middleware
	for name, c := range map[string]struct {
		do   func()
		says string
	}{
		"no next handler":        {func() { m.Handler(nil) }, "next handler is nil"},
		"a nil HandlerFunc":      {func() { m.Handler(http.HandlerFunc(nil)) }, "next handler is nil"},
		"a nil Middleware":       {func() { none.Handler(ok) }, "make it with New"},
		"a zero Middleware":      {func() { new(ratelimit.Middleware).Handler(ok) }, "make it with New"},
		"Take of a nil one":      {func() { _, _ = none.Take(nil) }, "make it with New"},
		"Peek of a nil one":      {func() { _, _ = none.Peek(nil) }, "make it with New"},
		"SetRules of a nil one":  {func() { _ = none.SetRules(nil) }, "make it with New"},
		"TopDenied of a nil one": {func() { _ = none.TopDenied(1) }, "make it with New"},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if said, _ := recover().(string); !strings.HasPrefix(said, "middleware: ") || !strings.Contains(said, c.says) {
					t.Errorf("panic %q, want %q", said, c.says)
				}
			}()
			c.do()
		})
	}
}
