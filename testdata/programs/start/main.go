// A server that limits its clients, and counts in this process.
package main

import (
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

func main() {
	limit, err := limits(new(algorithms.Memory))
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Addr: "localhost:8080", Handler: limit.Handler(routes()), ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(server.ListenAndServe())
}

func limits(limiter algorithms.Limiter) (*ratelimit.Middleware, error) {
	return ratelimit.New(ratelimit.Config{Limiter: limiter, Rules: []ratelimit.Rule{
		{Name: "per-ip", Key: keyfunc.IP, Limit: algorithms.PerMinute(200)},
		{
			Name: "login", Match: []string{"POST /login"}, Key: keyfunc.IP,
			Limit: algorithms.Limit{Rate: 5, Period: time.Minute, Algorithm: algorithms.SlidingLog},
		},
	}})
}

func routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello") })
	mux.HandleFunc("POST /login", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "welcome") })
	return mux
}
