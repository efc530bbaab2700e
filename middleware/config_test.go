package middleware_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/seed75154129/ratelimit/algorithms"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
	"github.com/seed75154129/ratelimit/middleware/admin"
)

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
		"a page of a zero one":   {func() { admin.Handler(new(ratelimit.Middleware)) }, "make it with New"},
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
