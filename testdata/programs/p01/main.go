package main

import (
	"log"
	"net/http"

	"github.com/seed75154129/ratelimit"
	"github.com/seed75154129/ratelimit/keyfunc"
)

func main() {
	limit, err := ratelimit.New(ratelimit.Config{Rules: []ratelimit.Rule{
		{Name: "per-ip", Key: keyfunc.IP, Limit: ratelimit.PerMinute(200)},
		{Name: "login", Match: []string{"POST /login"}, Key: keyfunc.IP, Limit: ratelimit.MustParse("5/1m sliding_log")},
	}})
	if err != nil {
		log.Fatal(err) // every mistake, and how to mend it
	}
	hello := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write([]byte("welcome\n")) })
	log.Fatal(http.ListenAndServe("localhost:8080", limit.Handler(hello)))
}
