package middleware_test

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/algorithms/limitertest"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// costOf takes a request's cost from its query: what the test wants.
func costOf(r *http.Request) int64 {
	n, _ := strconv.ParseInt(r.URL.Query().Get("cost"), 10, 64)
	return n
}

var byCost = ratelimit.Rule{Name: "units", Key: keyfunc.IP, CostFor: costOf, Cost: 2, Limit: algorithms.Limit{Rate: 5, Period: time.Hour, Algorithm: algorithms.SlidingLog}}

// A request that costs 0 passes, is charged nothing and is told what is left, with room
// and without. A negative cost is the rule's own.
func TestFreeRequests(t *testing.T) {
	beside := perHour("beside", 3)
	beside.Match = []string{"/both"}
	h := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{byCost, beside}}).Handler(ok)
	for i, c := range []struct {
		request string
		status  int
		left    string
	}{
		{"GET /?cost=0", 204, "5"},
		{"GET /?cost=3", 204, "2"},
		{"GET /?cost=0", 204, "2"},
		{"GET /?cost=-7", 204, "0"},
		{"GET /?cost=1", 429, "0"},
		{"GET /?cost=0", 204, "0"},
		{"GET /?cost=-1", 429, "0"},
		{"GET /both?cost=0", 204, "0"}, // the tightest is that without room
		{"GET /both?cost=1", 429, "0"}, // charges neither
		{"GET /both?cost=0", 204, "0"},
		{"GET /both?cost=0", 204, "0"},
		{"GET /both?cost=0", 429, "0"}, // denied by the rule beside it
	} {
		w := serve(h, c.request)
		if got := w.Header().Get("X-RateLimit-Remaining"); w.Code != c.status || got != c.left {
			t.Errorf("%d: %s: %d, %s left, want %d, %s", i, c.request, w.Code, got, c.status, c.left)
		}
	}
}

// Only a ban denies a free request. A store that cannot be asked does not, whatever the
// rule's mode is, nor does a limiter that cannot peek.
func TestWhatDeniesFreeRequests(t *testing.T) {
	rule := byCost
	rule.Fail = failmode.Closed
	rule.Ban = ratelimit.Ban{After: 1, For: time.Hour}
	h := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{rule}}).Handler(ok)
	for _, want := range []struct {
		request string
		status  int
	}{{"GET /?cost=5", 204}, {"GET /?cost=0", 204}, {"GET /?cost=1", 429}, {"GET /?cost=0", 429}} {
		if w := serve(h, want.request); w.Code != want.status {
			t.Errorf("%s: %d, want %d", want.request, w.Code, want.status)
		}
	}
	for name, limiter := range map[string]algorithms.Limiter{"outage": limitertest.Fail(nil), "cannot peek": unpeekable{limitertest.Allow()}} {
		h := mustNew(t, ratelimit.Config{Limiter: limiter, Rules: []ratelimit.Rule{rule}}).Handler(ok)
		if w := serve(h, "GET /?cost=0"); w.Code != http.StatusNoContent {
			t.Errorf("%s: %d", name, w.Code)
		}
	}
}

// What a free request turns out to use is counted all the same, in each window, also if it could
// not be told what is left: Add takes it, and in an outage follows the rule's mode.
func TestAddToAFreeRequest(t *testing.T) {
	windows := []algorithms.Limit{{Rate: 5, Period: time.Hour, Algorithm: algorithms.SlidingLog}, {Rate: 100, Period: 24 * time.Hour, Algorithm: algorithms.SlidingLog}}
	away := func(*hook) algorithms.Limiter { return limitertest.Fail(nil) }
	half := func(m *hook) algorithms.Limiter { // tells of the first check only
		m.peeked = func(r *algorithms.Result) error {
			if r.Check.Limit != windows[0] {
				*r = algorithms.Result{Check: r.Check, Err: context.DeadlineExceeded}
			}
			return nil
		}
		return m
	}
	for name, c := range map[string]struct {
		limiter func(*hook) algorithms.Limiter
		fail    failmode.Mode
		granted int
		counted int64
	}{
		"well":              {func(m *hook) algorithms.Limiter { return m }, failmode.Closed, 2, 4},
		"cannot peek":       {func(m *hook) algorithms.Limiter { return unpeekable{m} }, failmode.Closed, 2, 4},
		"half a look":       {half, failmode.Closed, 2, 4},
		"half a look, open": {half, failmode.Open, 2, 4},
		"an outage, closed": {away, failmode.Closed, 0, 0},
		"an outage, open":   {away, failmode.Open, 3, 0},
		"an outage, local":  {func(*hook) algorithms.Limiter { return guard(t, limitertest.Fail(nil), 1) }, failmode.Local, 2, 0},
	} {
		memory := new(hook)
		rule := byCost
		rule.Limit, rule.Limits, rule.Fail = algorithms.Limit{}, windows, c.fail
		var settled []algorithms.Result
		m := mustNew(t, ratelimit.Config{Limiter: c.limiter(memory), Rules: []ratelimit.Rule{rule}, Settled: func(_ *http.Request, d algorithms.Decision) { settled = d.Results }})
		granted := 0
		serve(m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			for range 3 {
				if ratelimit.Add(r.Context(), "units", 2) == nil {
					granted++
				}
			}
		})), "GET /?cost=0")
		if granted != c.granted {
			t.Errorf("%s: granted %d times, want %d", name, granted, c.granted)
		}
		for i, window := range windows {
			one := rule
			one.Limit = window
			if n := used(t, &memory.Memory, one); n != c.counted || n > 0 && (len(settled) != 2 || settled[i].Charged != n || settled[i].Err != nil) {
				t.Errorf("%s: %s counts %d, want %d; Settled was told %+v", name, window, n, c.counted, settled)
			}
		}
	}
}

type unpeekable struct{ algorithms.Limiter }

func (unpeekable) Peek(context.Context, ...algorithms.Check) (algorithms.Decision, error) {
	return algorithms.Decision{}, errors.ErrUnsupported
}

// A client that is known to be denied asks the store nothing, also if a rule is free.
func TestAFloodOfFreeRequestsAsksNoStore(t *testing.T) {
	asked := &spy{Limiter: new(algorithms.Memory)}
	h := mustNew(t, ratelimit.Config{Limiter: guard(t, asked, 1), Rules: []ratelimit.Rule{perHour("ip", 5), byCost}}).Handler(ok)
	for range 100 {
		serve(h, "GET /?cost=0")
	}
	if takes, peeks := asked.takes.Load(), asked.peeks.Load(); takes > 10 || peeks > 10 {
		t.Errorf("%d takes and %d peeks", takes, peeks)
	}
}
