package main

import (
	"log"
	"net/http"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit"
	"github.com/seed75154129/ratelimit/keyfunc"
)

func main() {
	guard := ratelimit.Redis(&redis.Options{Addr: "localhost:6379"}, "shop")
	limit, err := ratelimit.New(ratelimit.Config{Limiter: guard, Rules: []ratelimit.Rule{
		{Name: "per-ip", Key: keyfunc.IP, Limit: ratelimit.PerMinute(200)},
		{Name: "login", Match: []string{"POST /login"}, Key: keyfunc.IP, Limit: ratelimit.MustParse("5/1m sliding_log"), Fail: ratelimit.FailClosed},
	}})
	if err != nil {
		log.Fatal(err)
	}
	hello := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write([]byte("welcome\n")) })
	err = http.ListenAndServe("localhost:8080", limit.Handler(hello))
	guard.Close() // closes the client, too
	log.Fatal(err)
}
