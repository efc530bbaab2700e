package middleware_test

import (
	"encoding/json"
	"expvar"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// The metrics as expvar, which shows them under /debug/vars.
func ExampleMiddleware_Metrics() {
	memory := new(algorithms.Memory)
	limit, err := ratelimit.New(ratelimit.Config{
		Limiter: memory,
		Rules:   []ratelimit.Rule{{Name: "per-ip", Key: keyfunc.IP, Limit: algorithms.PerMinute(200)}},
	})
	if err != nil {
		log.Fatal(err)
	}
	expvar.Publish("ratelimit", expvar.Func(func() any {
		values := make(map[string]float64)
		for m := range limit.Metrics() {
			values[strings.Join(append([]string{m.Name}, m.Labels...), " ")] = m.Value
		}
		for m := range memory.Metrics() { // or the Guard's
			values[m.Name] = m.Value
		}
		return values
	}))

	if _, err := limit.Take(httptest.NewRequest(http.MethodGet, "/", nil)); err != nil {
		log.Fatal(err)
	}
	var values map[string]float64
	if err := json.Unmarshal([]byte(expvar.Get("ratelimit").String()), &values); err != nil {
		log.Fatal(err)
	}
	fmt.Println(values["ratelimit_decisions_total rule per-ip algorithm sliding_window outcome allowed source memory"])
	fmt.Println(values["ratelimit_local_keys"])
	// Output:
	// 1
	// 1
}
