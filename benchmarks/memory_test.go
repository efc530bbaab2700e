package benchmarks

import (
	"net/http"
	"testing"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// BenchmarkMemory is a request with the limits in this process.
func BenchmarkMemory(b *testing.B) {
	s := serving(handler(b, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: standard()}), http.StatusNoContent)
	warm(b, s)
	for _, callers := range callerCounts {
		b.Run("handler/"+callers.name, func(b *testing.B) { measure(b, callers.n, nil, s) })
	}
	take := taking(new(algorithms.Memory))
	warm(b, take)
	b.Run("take", func(b *testing.B) { loop(b, take) })
	b.Run("denied", func(b *testing.B) {
		rules := standard()
		rules[0].Limit = algorithms.PerHour(1)
		h := handler(b, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: rules})
		warm(b, serving(h, http.StatusNoContent))
		loop(b, serving(h, http.StatusTooManyRequests))
	})
}

// BenchmarkNoRule is a request that no rule matches, beside the handler alone.
func BenchmarkNoRule(b *testing.B) {
	rules := []ratelimit.Rule{
		{Name: "login", Match: []string{"POST /auth/login"}, Key: keyfunc.IP, Limit: perIP},
		{Name: "api", Match: []string{"/api/"}, Key: keyfunc.IP, Limit: perIP},
		{Name: "files", Match: []string{"GET /files/{path...}"}, Key: keyfunc.IP, Limit: perEndpoint},
	}
	h := handler(b, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: rules})
	b.Run("handler", func(b *testing.B) { loop(b, serving(h, http.StatusNoContent)) })
	b.Run("unlimited", func(b *testing.B) { loop(b, serving(admitted, http.StatusNoContent)) })
}

// BenchmarkKeyIP resolves who asks, by address.
func BenchmarkKeyIP(b *testing.B) {
	b.ReportAllocs()
	r := newCaller().request
	for b.Loop() {
		if _, err := keyfunc.IP.Resolve(r); err != nil {
			b.Fatal(err)
		}
	}
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

var callerCounts = []struct {
	name string
	n    int
}{{"callers=1", 1}, {"callers=16", 16}, {"callers=128", 128}}
