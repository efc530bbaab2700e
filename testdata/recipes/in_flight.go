package recipes

import (
	"context"
	"net/http"
	"time"

	"github.com/seed75154129/ratelimit"
	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// exports allows each user, across all processes, two exports at once and 30 an hour.
func exports(user keyfunc.Key, export func(context.Context)) ([]ratelimit.Rule, http.Handler) {
	match := []string{"/exports"}
	rules := []ratelimit.Rule{
		{Name: "exports-at-once", Match: match, Key: user, Limit: ratelimit.MaxInFlight(2), RetryAfter: 15 * time.Second},
		{Name: "exports", Match: match, Key: user, Limit: ratelimit.PerHour(30)}, // stops floods of requests
	}
	return rules, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		release := ratelimit.Hold(r.Context()) // the export goes on after the 202
		go func() {
			defer release()
			export(context.WithoutCancel(r.Context()))
		}()
		w.WriteHeader(http.StatusAccepted)
	})
}

// sockets allows each user five connections at once and 30 new connections a minute.
func sockets(user keyfunc.Key) []ratelimit.Rule {
	match := []string{"/ws"}
	return []ratelimit.Rule{
		{Name: "sockets", Match: match, Key: user, // Period is a place's lease; a long lease needs few renewals
			Limit: ratelimit.Limit{Rate: 5, Period: 5 * time.Minute, Algorithm: algorithms.InFlight}},
		{Name: "connects", Match: match, Key: user, Limit: ratelimit.PerMinute(30)}, // stops floods of requests
	}
}

// pumped serves a connection until its handler returns.
func pumped(upgrade func(http.ResponseWriter, *http.Request) (socket, error), write, read func(*http.Request, socket)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		conn, err := upgrade(w, r)
		if err != nil {
			return
		}
		go write(r, conn)
		read(r, conn)
	}
}

// handedOn serves a connection after its handler has returned.
func handedOn(upgrade func(http.ResponseWriter, *http.Request) (socket, error), serve func(*http.Request, socket)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		conn, err := upgrade(w, r)
		if err != nil {
			return
		}
		release := ratelimit.Hold(r.Context())
		ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context())) // r.Context() ends with the handler
		go func() {
			defer release()
			defer cancel()
			serve(r.WithContext(ctx), conn)
		}()
	}
}
