package middleware_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// emptied is a limiter that another process empties before it decides.
type emptied struct {
	algorithms.Memory
	queue algorithms.Check
	empty bool
}

func (e *emptied) Unwrap() algorithms.Limiter { return &e.Memory }

func (e *emptied) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	if e.empty {
		e.empty = false
		if err := e.Reset(ctx, e.queue); err != nil {
			return algorithms.Decision{}, err
		}
		if _, err := e.Memory.Take(ctx, e.queue); err != nil {
			return algorithms.Decision{}, err
		}
	}
	return e.Memory.Take(ctx, checks...)
}

// A request that is known to be over, and is admitted to a queue after all, waits
// for its turn even if no key reads its body in the end.
func TestQueueBeforeABodyThatHasNoKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := algorithms.Limit{Rate: 1, Period: time.Second, Burst: 2, Algorithm: algorithms.LeakyBucket}
		l := &emptied{queue: algorithms.Check{Rule: "queue", Key: "all", Limit: queue}}
		m := mustNew(t, ratelimit.Config{Limiter: l, Rules: []ratelimit.Rule{
			{Name: "queue", Key: keyfunc.Func(func(*http.Request) (string, error) { return "all", nil }), Limit: queue},
			{Name: "account", Key: keyfunc.Optional(keyfunc.BodyForm("account", 1<<10)), Limit: algorithms.PerHour(9)},
		}})
		h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
		for range 2 {
			if _, err := l.Memory.Take(t.Context(), l.queue); err != nil {
				t.Fatal(err)
			}
		}
		l.empty = true
		begun := time.Now()
		w := login(h, "")
		if took := time.Since(begun); w.Code != http.StatusTeapot || took != time.Second {
			t.Errorf("status %d after %s", w.Code, took)
		}
	})
}

func TestDelayByALimiterOfTheUsersOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &hook{result: func(r *algorithms.Result) error { r.Delay = time.Second; return nil }}
		h := mustNew(t, ratelimit.Config{Limiter: l, Rules: []ratelimit.Rule{perHour("no-queue", 5)}}).
			Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
		begun := time.Now()
		w := serve(h, "GET /")
		if took := time.Since(begun); w.Code != http.StatusTeapot || took != time.Second {
			t.Errorf("status %d after %s", w.Code, took)
		}
	})
}
