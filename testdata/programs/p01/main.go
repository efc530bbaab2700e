// A server that limits its clients.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err) // ratelimit.New reports all mistakes at once
	}
}

func run() error {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /login", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "welcome") })

	client := redis.NewClient(algorithms.FailFast(&redis.Options{Addr: "localhost:6379"}))
	defer client.Close()
	guard := &failmode.Guard{Limiter: &algorithms.Redis{Client: client, Namespace: "shop"}}
	defer guard.Close()
	if err := guard.Warm(context.Background()); err != nil {
		log.Print("Redis is not ready: ", err) // the server starts all the same
	}
	limit, err := ratelimit.New(ratelimit.Config{Limiter: guard, Rules: []ratelimit.Rule{
		{Name: "per-ip", Key: keyfunc.IP, Limit: algorithms.PerMinute(200)},
		{
			Name: "login", Match: []string{"POST /login"}, Key: keyfunc.IP, Fail: failmode.Closed,
			Limit: algorithms.Limit{Rate: 5, Period: time.Minute, Algorithm: algorithms.SlidingLog},
		},
	}})
	if err != nil {
		return err
	}

	server := &http.Server{Addr: "localhost:8080", Handler: limit.Handler(mux), ReadHeaderTimeout: 5 * time.Second}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	stop()                                       // a second signal ends the program at once
	return server.Shutdown(context.Background()) // returns when all requests are answered
}
