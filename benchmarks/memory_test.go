package benchmarks

import (
	"net/http"
	"testing"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// BenchmarkMemory is a request with the limits in this process, admitted and
// denied, by one rule and by the standard stack, beside peers.
func BenchmarkMemory(b *testing.B) {
	run := func(b *testing.B, n int, ip algorithms.Limit, status int) {
		rules := standard()[:n]
		rules[0].Limit = ip
		ours := handler(b, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: rules, Logger: new(log).logger()})
		all := []contender{{"handler", serving(ours, status), nil}}
		for _, p := range memoryPeers(b, layered(ip)[:n]) {
			all = append(all, contender{p.name, serving(p.handler, status), nil})
		}
		for _, c := range all {
			warm(b, ignoring(c.subject)) // which uses up what a flood may have
			warm(b, c.subject)
		}
		compare(b, load{timed: inProcess}, all)
	}
	b.Run("admitted", func(b *testing.B) { run(b, 3, perIP, http.StatusNoContent) })
	b.Run("denied", func(b *testing.B) { run(b, 3, usedUp, http.StatusTooManyRequests) })
	b.Run("one_admitted", func(b *testing.B) { run(b, 1, perIP, http.StatusNoContent) })
	b.Run("one_denied", func(b *testing.B) { run(b, 1, usedUp, http.StatusTooManyRequests) })
	take := taking(new(algorithms.Memory))
	warm(b, take)
	b.Run("take", func(b *testing.B) { loop(b, take) })
}

// BenchmarkNoRule is a request that no rule matches, beside the handler alone.
func BenchmarkNoRule(b *testing.B) {
	rules := []ratelimit.Rule{
		{Name: "login", Match: []string{"POST /auth/login"}, Key: keyfunc.IP, Limit: perIP},
		{Name: "api", Match: []string{"/api/"}, Key: keyfunc.IP, Limit: perIP},
		{Name: "files", Match: []string{"GET /files/{path...}"}, Key: keyfunc.IP, Limit: perEndpoint},
	}
	h := handler(b, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: rules, Logger: new(log).logger()})
	b.Run("handler", func(b *testing.B) { loop(b, serving(h, http.StatusNoContent)) })
	b.Run("unlimited", func(b *testing.B) { loop(b, serving(admitted, http.StatusNoContent)) })
}

// loop is measure with one caller and nothing but the request in it.
func loop(b *testing.B, s subject) {
	b.Helper()
	b.ReportAllocs()
	do, client := s(), 0
	for b.Loop() {
		if err := do(client); err != nil {
			b.Fatal(err)
		}
		if client += stride; client >= clients {
			client -= clients
		}
	}
}
