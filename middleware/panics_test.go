package middleware_test

import (
	"cmp"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// Whatever function of the program panics, the request leaves no place in flight and
// no ticket of the queue, which has one; and no charge, unless it was decided.
func TestAPanicLeavesNothing(t *testing.T) {
	panics := func() { panic(http.ErrAbortHandler) }
	for name, c := range map[string]struct {
		change  func(*ratelimit.Config)
		request string
		take    bool  // by Take, whose decision nobody has then
		charged int64 // for it
	}{
		"SkipFor": {change: func(c *ratelimit.Config) { c.SkipFor = func(*http.Request) bool { panics(); return false } }},
		"TierFor": {change: func(c *ratelimit.Config) { c.TierFor = func(*http.Request) string { panics(); return "" } }},
		"Key": {change: func(c *ratelimit.Config) {
			c.Rules[4].Key = keyfunc.Func(func(*http.Request) (string, error) { panics(); return "", nil })
		}},
		"LimitsFor": {change: func(c *ratelimit.Config) {
			c.Rules[4].LimitsFor = func(*http.Request) []algorithms.Limit { panics(); return nil }
		}},
		"CostFor": {change: func(c *ratelimit.Config) { c.Rules[4].CostFor = func(*http.Request) int64 { panics(); return 1 } }},
		"CostFor of a rule that reads the body": {change: func(c *ratelimit.Config) {
			c.Rules[4].Key, c.Rules[4].CostFor = keyfunc.BodyJSON("user", 100), func(*http.Request) int64 { panics(); return 1 }
		}},
		"Observe":          {change: func(c *ratelimit.Config) { c.Observe = func(*http.Request, algorithms.Decision) { panics() } }, charged: 1},
		"Observe, of Take": {take: true, change: func(c *ratelimit.Config) { c.Observe = func(*http.Request, algorithms.Decision) { panics() } }, charged: 1},
		"Headers":          {change: func(c *ratelimit.Config) { c.Headers = func(http.Header, algorithms.Decision) { panics() } }, charged: 1},
		"Settled":          {change: func(c *ratelimit.Config) { c.Settled = func(*http.Request, algorithms.Decision) { panics() } }, charged: 1},
		"Denied": {request: "POST /denied", change: func(c *ratelimit.Config) {
			c.Denied = func(http.ResponseWriter, *http.Request, algorithms.Decision) { panics() }
		}},
		"Refused": {request: "POST /refused", change: func(c *ratelimit.Config) {
			c.Refused = func(http.ResponseWriter, *http.Request, error) { panics() }
		}, charged: 1},
		"the handler":              {request: "POST /panics", charged: 1},
		"the handler, after a 200": {request: "POST /panics/late", charged: 1},
		"work in a Hold":           {request: "POST /panics/held", charged: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				charged := perHour("charged", 1000)
				charged.ChargeOn = []int{http.StatusTeapot}
				memory := new(algorithms.Memory)
				config := ratelimit.Config{
					Limiter: memory, Logger: slog.New(slog.DiscardHandler), MaxWaiting: 2,
					Rules: []ratelimit.Rule{
						charged,
						{Name: "at-once", Key: keyfunc.IP, Limit: algorithms.MaxInFlight(1)},
						{Name: "pace", Key: keyfunc.IP, Limit: algorithms.Limit{Rate: 1, Period: time.Second, Burst: 9, Algorithm: algorithms.LeakyBucket}},
						{Name: "denied", Match: []string{"POST /denied"}, Key: keyfunc.IP, Limit: algorithms.PerHour(1), Cost: 1},
						{Name: "last", Key: keyfunc.IP, Limit: algorithms.PerHour(1000), Tiers: map[string][]algorithms.Limit{"pro": {algorithms.PerHour(1000)}}},
						{Name: "refused", Match: []string{"POST /refused"}, Key: keyfunc.Required(keyfunc.Header("Nobody"), 401), Limit: algorithms.PerHour(1)},
					},
				}
				if c.change != nil {
					c.change(&config)
				}
				m := mustNew(t, config)
				h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					switch {
					case strings.HasSuffix(r.URL.Path, "/held"):
						defer ratelimit.Hold(r.Context())()
					case strings.HasSuffix(r.URL.Path, "/late"):
						w.WriteHeader(http.StatusTeapot)
					}
					if strings.HasPrefix(r.URL.Path, "/panics") {
						panics()
					}
				}))
				if c.request == "POST /denied" {
					_, _ = memory.Take(t.Context(), algorithms.Check{Rule: "denied", Key: "192.0.2.1", Limit: algorithms.PerHour(1), Cost: 1})
				}
				did := func() (did bool) {
					defer func() { did = recover() != nil }()
					r := request(cmp.Or(c.request, "POST /")).WithContext(t.Context())
					if c.take {
						_, _ = m.Take(r)
					}
					h.ServeHTTP(httptest.NewRecorder(), r)
					return false
				}
				for i := range int64(3) {
					if !did() {
						t.Fatal("no panic")
					}
					synctest.Wait()
					if n, want := used(t, memory, config.Rules[0]), (i+1)*c.charged; n != want || used(t, memory, config.Rules[1]) != 0 {
						t.Fatalf("%d charged, want %d; %v in flight", n, want, used(t, memory, config.Rules[1]))
					}
				}
			})
		})
	}
}

// Rules whose keys read the body may be resolved after the others were charged. If a
// function of such a rule panics then, no place is held.
func TestAPanicBetweenTwoQuestionsHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		redis, user := new(store), perHour("user", 1)
		m := mustNew(t, ratelimit.Config{Limiter: guard(t, redis, 1), Rules: []ratelimit.Rule{
			user, {Name: "jobs", Key: keyfunc.IP, Limit: algorithms.MaxInFlight(1)},
			{Name: "body", Key: keyfunc.BodyJSON("user", 100), Limit: algorithms.PerHour(100), CostFor: func(r *http.Request) int64 {
				if r.URL.Path == "/panics" {
					panic("cost")
				}
				return 1
			}},
		}})
		h := m.Handler(ok)
		times(2, h, "POST /")
		if err := redis.Reset(t.Context(), algorithms.Check{Rule: "user", Key: "192.0.2.1", Limit: user.Limit}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second) // the Guard believes that the user is over the limit, and asks again
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			serve(h, "POST /panics")
		}()
		if w := serve(h, "POST /"); w.Code >= 400 || used(t, redis, user) != 1 {
			t.Errorf("status %d, %d used", w.Code, used(t, redis, user))
		}
	})
}
