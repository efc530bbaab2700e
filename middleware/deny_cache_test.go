package middleware_test

import (
	"fmt"
	"maps"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed75154129/ratelimit/headers"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// A client cannot tell whether Redis denied it or the Guard, which remembers.
func TestADenialFromTheCacheIsAnsweredLikeTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counting, registry := &spy{Limiter: new(store)}, prometheus.NewRegistry()
		secret := perHour("secret", 3)
		secret.Hidden = true
		m := measured(t, registry, ratelimit.Config{
			Limiter: guard(t, counting, 1),
			Headers: headers.All(headers.XRateLimit, headers.IETFDraft11),
			Rules:   []ratelimit.Rule{perHour("ample", 100), perHour("tight", 3), secret},
		})
		h := m.Handler(ok)
		times(3, h, "GET /")
		first := serve(h, "GET /")
		for _, line := range []string{"GET /", "POST /", "GET /items"} {
			w := serve(h, line)
			if w.Code != http.StatusTooManyRequests || w.Body.String() != first.Body.String() || !maps.EqualFunc(w.Header(), first.Header(), equalValues) {
				t.Errorf("%s: %d %v %s\nthe first: %v %s", line, w.Code, w.Header(), w.Body, first.Header(), first.Body)
			}
		}
		if n := counting.takes.Load(); n != 4 {
			t.Errorf("the store was asked %d times", n)
		}
		wantSamples(t, registry, map[string]float64{
			"decisions_total sliding_window denied tight redis":       1,
			"decisions_total sliding_window denied tight deny_cache":  3,
			"decisions_total sliding_window denied secret deny_cache": 3,
			"decisions_total sliding_window allowed ample redis":      4, // and not decided three times
			"store_duration_seconds_count":                            4,
			"decision_duration_seconds_count":                         7,
		})
		if top := m.TopDenied(1); len(top) != 1 || top[0].Count != 4 {
			t.Errorf("%+v", top)
		}
		time.Sleep(1500 * time.Millisecond)
		serve(h, "GET /") // asks
		if w := serve(h, "GET /"); w.Header().Get("X-RateLimit-Reset") != first.Header().Get("X-RateLimit-Reset") ||
			w.Header().Get("Retry-After") == first.Header().Get("Retry-After") {
			t.Errorf("later: %v\nthe first: %v", w.Header(), first.Header())
		}
	})
}

func equalValues(a, b []string) bool { return fmt.Sprint(a) == fmt.Sprint(b) }

// A denial by a rule that charges by response is remembered, until this process refunds
// one of the charges.
func TestDenialsByChargeOnAreRememberedUntilARefund(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counting, status := &spy{Limiter: new(store)}, make(chan int)
		m := mustNew(t, ratelimit.Config{Limiter: guard(t, counting, 1), Rules: []ratelimit.Rule{failures(2)}})
		h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(<-status) }))
		for range 2 {
			go serve(h, "POST /login")
		}
		synctest.Wait()
		for range 10 {
			if w := serve(h, "POST /login"); w.Code != http.StatusTooManyRequests {
				t.Errorf("%d", w.Code)
			}
		}
		if n := counting.takes.Load(); n != 3 {
			t.Errorf("the store was asked %d times, want 3", n)
		}
		status <- http.StatusUnauthorized
		status <- http.StatusOK
		synctest.Wait()
		go func() { status <- http.StatusOK }()
		if w := serve(h, "POST /login"); w.Code != http.StatusOK {
			t.Errorf("after a refund: %d", w.Code)
		}
	})
}
