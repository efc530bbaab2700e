package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// GraphQL: ten points per minute, known afterwards. After a query of 30 the next
// is admitted when the debt is paid, and Retry-After says when.
func TestSettleIntoDebt(t *testing.T) {
	for name, limiter := range limiters {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := mustNew(t, ratelimit.Config{Limiter: limiter(t), Rules: []ratelimit.Rule{
					perHour("requests", 600), {Name: "graphql", Key: keyfunc.IP, Limit: bucket(10)},
				}})
				cost := int64(30)
				h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if err := ratelimit.Settle(r.Context(), "graphql", cost); err != nil {
						t.Error(err)
					}
					d, _ := ratelimit.FromContext(r.Context())
					if query, _ := d.Result("graphql"); query.Charged != cost {
						t.Errorf("%+v", query)
					}
					if all, _ := d.Result("requests"); all.Charged != 1 {
						t.Errorf("%+v", all)
					}
					w.WriteHeader(http.StatusNoContent)
				}))
				if w := serve(h, "POST /graphql"); w.Code != 204 || w.Header().Get("X-RateLimit-Remaining") != "9" {
					t.Errorf("%d %v", w.Code, w.Header())
				}
				if w := serve(h, "POST /graphql"); w.Code != 429 || w.Header().Get("Retry-After") != "126" {
					t.Errorf("%d %v", w.Code, w.Header())
				}
				time.Sleep(126*time.Second - time.Millisecond) // takes no time
				if w := serve(h, "POST /graphql"); w.Code != 429 {
					t.Errorf("a millisecond before: %d", w.Code)
				}
				time.Sleep(time.Millisecond)
				cost = 0
				if w := serve(h, "POST /graphql"); w.Code != 204 || w.Header().Get("X-RateLimit-Remaining") != "0" {
					t.Errorf("126 s later: %d %v", w.Code, w.Header())
				}
			})
		})
	}
}

// within serves one request by a middleware and returns what settle returned.
func within(t testing.TB, m *ratelimit.Middleware, settle func(context.Context, http.ResponseWriter) error) (err error) {
	t.Helper()
	called := false
	m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		called = true
		err = settle(r.Context(), w)
	})).ServeHTTP(httptest.NewRecorder(), request("POST /"))
	if !called {
		t.Fatal("denied")
	}
	return err
}

func TestSettleIsForOneRuleAndOnce(t *testing.T) {
	memory := new(algorithms.Memory)
	a, b := perHour("a", 100), perHour("b", 50)
	m := mustNew(t, ratelimit.Config{Limiter: memory, Rules: []ratelimit.Rule{a, b}})
	settle := ratelimit.Settle
	var later func() error
	for i, c := range []struct {
		settle func(context.Context, http.ResponseWriter) error
		err    string
		a, b   int64 // charged by this request
	}{
		{func(ctx context.Context, _ http.ResponseWriter) error { return settle(ctx, "a", 60) }, "", 60, 1},
		{func(ctx context.Context, _ http.ResponseWriter) error { return settle(ctx, "a", 0) }, "", 0, 1},
		{func(ctx context.Context, _ http.ResponseWriter) error { return settle(ctx, "a", 1) }, "", 1, 1},
		{func(ctx context.Context, _ http.ResponseWriter) error { return settle(ctx, "nobody-has-it", 9) }, `middleware: no such rule: "nobody-has-it"`, 1, 1},
		{func(ctx context.Context, _ http.ResponseWriter) error { return settle(ctx, "a", -1) }, `middleware: settle: rule "a": units must not be negative, got -1`, 1, 1},
		{func(ctx context.Context, _ http.ResponseWriter) error {
			_ = settle(ctx, "a", 2)
			return settle(ctx, "a", 0)
		}, `middleware: settle: rule "a": settled before`, 2, 1},
		{func(ctx context.Context, _ http.ResponseWriter) error {
			return errors.Join(settle(ctx, "a", 3), settle(ctx, "b", 4))
		}, "", 3, 4},
		{func(ctx context.Context, w http.ResponseWriter) error {
			w.WriteHeader(http.StatusNoContent)
			later = func() error { return settle(ctx, "b", 5) }
			return settle(ctx, "a", 2)
		}, "", 2, 1},
	} {
		beforeA, beforeB := used(t, memory, a), used(t, memory, b)
		err := within(t, m, c.settle)
		gotA, gotB := used(t, memory, a)-beforeA, used(t, memory, b)-beforeB
		if c.err == "" && err != nil || !strings.HasPrefix(fmt.Sprint(err), c.err) && c.err != "" || gotA != c.a || gotB != c.b {
			t.Errorf("%d: %v, charged %d and %d; want %s, %d and %d", i, err, gotA, gotB, c.err, c.a, c.b)
		}
	}
	if err := later(); err == nil || !strings.Contains(err.Error(), "the handler has returned") {
		t.Errorf("afterwards: %v", err)
	}
}

// Settle takes precedence over ChargeOn, before the status and, in vain, after it.
func TestSettleAndChargeOn(t *testing.T) {
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		used    int64
	}{
		"a cost, and a status that gives back": {func(w http.ResponseWriter, r *http.Request) {
			if err := ratelimit.Settle(r.Context(), "login", 3); err != nil {
				t.Error(err)
			}
			w.WriteHeader(http.StatusOK)
		}, 3},
		"nothing, and a status that charges": {func(w http.ResponseWriter, r *http.Request) {
			if err := ratelimit.Settle(r.Context(), "login", 0); err != nil {
				t.Error(err)
			}
			w.WriteHeader(http.StatusUnauthorized)
		}, 0},
		"a status that gives back, and a cost": {func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusOK)
			if err := ratelimit.Settle(r.Context(), "login", 3); err == nil {
				t.Error("settled twice")
			}
		}, 0},
		"a status that charges, and a cost": {func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusUnauthorized)
			if err := ratelimit.Settle(r.Context(), "login", 3); err != nil {
				t.Error(err)
			}
		}, 3},
	} {
		memory, rule := new(algorithms.Memory), failures(5)
		serve(mustNew(t, ratelimit.Config{Limiter: memory, Rules: []ratelimit.Rule{rule}}).Handler(c.handler), "POST /")
		if n := used(t, memory, rule); n != c.used {
			t.Errorf("%s: %d charged, want %d", name, n, c.used)
		}
	}
}

func TestSettleThroughAChain(t *testing.T) {
	memory := new(algorithms.Memory)
	outerRule, innerRule := perHour("outer", 9), perHour("inner", 50)
	outer := mustNew(t, ratelimit.Config{Limiter: memory, Rules: []ratelimit.Rule{outerRule}})
	inner := mustNew(t, ratelimit.Config{Limiter: memory, Rules: []ratelimit.Rule{innerRule}})
	h := outer.Handler(inner.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if err := ratelimit.Settle(r.Context(), "outer", 0); err != nil {
			t.Error(err)
		}
		if err := ratelimit.Settle(r.Context(), "inner", 45); err != nil {
			t.Error(err)
		}
	})))
	serve(h, "POST /")
	if a, b := used(t, memory, outerRule), used(t, memory, innerRule); a != 0 || b != 45 {
		t.Errorf("%d and %d charged", a, b)
	}
}

// A client that has left, or a handler whose time is up, still pays.
func TestSettleOfAnEndedRequest(t *testing.T) {
	memory, rule := new(algorithms.Memory), perHour("r", 9)
	m := mustNew(t, ratelimit.Config{Limiter: memory, Rules: []ratelimit.Rule{rule}})
	err := within(t, m, func(ctx context.Context, _ http.ResponseWriter) error {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		return ratelimit.Settle(ctx, "r", 5)
	})
	if n := used(t, memory, rule); err != nil || n != 5 {
		t.Errorf("%v, %d charged", err, n)
	}
}

// A spy counts the calls of a limiter, and fails to settle some rules.
type spy struct {
	algorithms.Limiter
	takes, settles atomic.Int64
	fails          string // the rule that it cannot settle
}

func (l *spy) Unwrap() algorithms.Limiter { return l.Limiter }

func (l *spy) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	l.takes.Add(1)
	return l.Limiter.Take(ctx, checks...)
}

func (l *spy) Settle(ctx context.Context, charges ...algorithms.Charge) ([]algorithms.Result, error) {
	l.settles.Add(1)
	charges = slices.Clone(charges)
	var err error
	for i := range charges {
		if charges[i].Result.Check.Rule == l.fails {
			charges[i].Cost, err = charges[i].Result.Charged, redis.ErrClosed
		}
	}
	results, settleErr := l.Limiter.Settle(ctx, charges...)
	return results, errors.Join(err, settleErr)
}

// SettleAll sends one command, and its error names exactly the rules that it has not settled.
func TestSettleAll(t *testing.T) {
	for name, c := range map[string]struct {
		costs   map[string]int64
		before  string // settled before
		fails   string
		a, b    int64 // charged in the end
		settles int64
		errs    []string // what the lines of the error begin with
	}{
		"two rules":             {costs: map[string]int64{"a": 60, "b": 20}, a: 60, b: 20, settles: 1},
		"one of two":            {costs: map[string]int64{"b": 0}, a: 1, settles: 1},
		"nothing to do":         {costs: map[string]int64{"a": 1, "b": 1}, a: 1, b: 1},
		"no rules":              {a: 1, b: 1},
		"one does not apply":    {costs: map[string]int64{"a": 5, "elsewhere": 7}, a: 5, b: 1, settles: 1},
		"one is negative":       {costs: map[string]int64{"a": -5, "b": 5}, a: 1, b: 5, settles: 1, errs: []string{`middleware: settle: rule "a": units must not be negative, got -5`}},
		"one is settled before": {before: "a", costs: map[string]int64{"a": 5, "b": 6}, a: 9, b: 6, settles: 2, errs: []string{`middleware: settle: rule "a": settled before`}},
		"the limiter fails one": {fails: "b", costs: map[string]int64{"a": 5, "b": 6}, a: 5, b: 1, settles: 1, errs: []string{`middleware: settle: rule "b": redis: client is closed`}},
		"all fail": {fails: "b", before: "a", costs: map[string]int64{"a": -5, "b": 6}, a: 9, b: 1, settles: 2, errs: []string{
			`middleware: settle: rule "a": units must not be negative`, `middleware: settle: rule "b": redis: client is closed`}},
	} {
		t.Run(name, func(t *testing.T) {
			limiter := &spy{Limiter: new(algorithms.Memory), fails: c.fails}
			a, b := perHour("a", 100), perHour("b", 50)
			err := within(t, mustNew(t, ratelimit.Config{Limiter: limiter, Rules: []ratelimit.Rule{a, b, perHour("elsewhere", 5, "/elsewhere")}}),
				func(ctx context.Context, _ http.ResponseWriter) error {
					if c.before != "" {
						_ = ratelimit.Settle(ctx, c.before, 9)
					}
					return ratelimit.SettleAll(ctx, c.costs)
				})
			var errs []string
			if err != nil {
				errs = strings.Split(err.Error(), "\n")
			}
			if !slices.EqualFunc(errs, c.errs, strings.HasPrefix) {
				t.Errorf("error %q, want %q", errs, c.errs)
			}
			if gotA, gotB := used(t, limiter, a), used(t, limiter, b); gotA != c.a || gotB != c.b || limiter.settles.Load() != c.settles {
				t.Errorf("%d and %d charged by %d commands, want %d and %d by %d", gotA, gotB, limiter.settles.Load(), c.a, c.b, c.settles)
			}
		})
	}
}
