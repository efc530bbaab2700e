package examples_test

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit"
	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/algorithms/limitertest"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// logins sends so many logins at once, which the handler answers in 100 ms: 401 to
// a wrong password and 204 to any other, also where the client has hung up. It
// returns how many got each status.
func logins(limit *ratelimit.Middleware, n int, ip, password string) map[int]int {
	h := limit.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(100 * time.Millisecond)
		if password == "wrong" {
			w.WriteHeader(http.StatusUnauthorized)
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	statuses, codes := make(map[int]int), make(chan int)
	for range n {
		go func() {
			ctx, hangUp := context.WithCancel(context.Background())
			defer hangUp()
			if password == "aborted" {
				time.AfterFunc(50*time.Millisecond, hangUp)
			}
			w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPost, "/login", nil)
			r.RemoteAddr = ip + ":1234"
			h.ServeHTTP(w, r)
			codes <- w.Code
		}()
	}
	for range n {
		statuses[<-codes]++
	}
	return statuses
}

// TestLogin is five failed logins a minute and, after the tenth, a ban of a quarter of an
// hour, in two processes.
func TestLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, process := limitertest.Redis(t), [2]*ratelimit.Middleware{}
		rules := []ratelimit.Rule{{Name: "login", Key: keyfunc.IP, Limit: ratelimit.MustParse("5/1m sliding_log"), ChargeOn: []int{401},
			Ban: ratelimit.Ban{After: 10, Within: 10 * time.Minute, For: 15 * time.Minute}}}
		for i := range process {
			guard := &failmode.Guard{Limiter: &algorithms.Redis{Client: client, Namespace: "app"}, Logger: slog.New(slog.DiscardHandler)}
			defer guard.Close()
			process[i], _ = ratelimit.New(ratelimit.Config{Limiter: guard, Rules: rules, Logger: slog.New(slog.DiscardHandler)})
		}
		want := func(statuses, got map[int]int) {
			if t.Helper(); !maps.Equal(got, statuses) {
				t.Errorf("%v, want %v", got, statuses)
			}
		}
		for range 200 { // 1,000 successful logins, 5 in flight
			want(map[int]int{204: 5}, logins(process[0], 5, "192.0.2.1", "right"))
		}
		want(map[int]int{401: 5, 429: 1}, logins(process[0], 6, "192.0.2.2", "wrong")) // the sixth failure, concurrently
		want(map[int]int{401: 5}, logins(process[0], 5, "192.0.2.3", "wrong"))
		want(map[int]int{429: 1}, logins(process[1], 1, "192.0.2.3", "wrong")) // and one after the other
		want(map[int]int{204: 5}, logins(process[0], 5, "192.0.2.4", "aborted"))
		want(map[int]int{429: 1}, logins(process[1], 1, "192.0.2.4", "right"))           // who aborts is not refunded
		want(map[int]int{204: 5, 429: 10}, logins(process[0], 15, "192.0.2.5", "right")) // fifteen behind one address
		want(map[int]int{204: 5}, logins(process[1], 5, "192.0.2.5", "right"))           // are not banned
		time.Sleep(time.Minute)
		want(map[int]int{401: 5}, logins(process[1], 5, "192.0.2.3", "wrong")) // the tenth failure
		time.Sleep(14 * time.Minute)
		for _, m := range process {
			want(map[int]int{429: 1}, logins(m, 1, "192.0.2.3", "right")) // the key is banned in both processes
			_ = m.SetRules(rules)
			want(map[int]int{429: 1}, logins(m, 1, "192.0.2.3", "right")) // and still after a SetRules
		}
		time.Sleep(time.Minute)
		want(map[int]int{204: 1}, logins(process[1], 1, "192.0.2.3", "right"))
	})
}
