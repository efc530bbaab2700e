package middleware_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/algorithms/limitertest"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/headers"
	"github.com/seed75154129/ratelimit/internal/redistest"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// banning is a rule that bans at the third denial.
func banning(rate int64) ratelimit.Rule {
	r := perHour("login", rate)
	r.Ban = ratelimit.Ban{After: 3, Within: time.Hour, For: 24 * time.Hour}
	return r
}

// answered are handlers that answer with a status, after a while.
func answered(status int, after time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(after)
		w.WriteHeader(status)
	})
}

// bannedFor asks the limiter for how long httptest's address is banned, and changes nothing.
func bannedFor(t testing.TB, m *ratelimit.Middleware) (rest time.Duration) {
	t.Helper()
	d, err := m.Peek(request("POST /"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range d.Results {
		rest = max(rest, d.Results[i].BannedFor)
	}
	return rest
}

func isBanned(t testing.TB, m *ratelimit.Middleware) bool {
	t.Helper()
	return bannedFor(t, m) > 0
}

// A fleet is processes on one Redis, whose clock the test moves.
type fleet struct {
	all     []*ratelimit.Middleware
	clock   *redistest.Clock
	proxy   *redistest.Proxy
	options *redis.Options
}

func newFleet(t *testing.T, processes int, rules ...ratelimit.Rule) *fleet {
	srv, clock := redistest.StartWithClock(t)
	f := &fleet{clock: clock, proxy: redistest.StartProxy(t, srv.Options().Addr)}
	options := srv.Options()
	options.Addr = f.proxy.Addr
	f.options = options
	for range processes {
		f.all = append(f.all, f.join(t, rules...))
	}
	return f
}

// join returns one more process.
func (f *fleet) join(t *testing.T, rules ...ratelimit.Rule) *ratelimit.Middleware {
	guard := failmode.Redis(f.options, "test")
	guard.Instances, guard.Logger = 50, slog.New(slog.DiscardHandler)
	guard.Limiter.(*algorithms.Redis).Budget = time.Second
	t.Cleanup(func() { _ = guard.Close() })
	return mustNew(t, ratelimit.Config{Limiter: guard, Rules: rules})
}

// A client that is banned gets nothing from any process until the ban ends, however slowly it
// goes on. Denials during the ban do not count.
func TestABanHoldsInAllProcessesAtOnce(t *testing.T) {
	rule := perHour("login", 2)
	rule.Limit = algorithms.Limit{Rate: 2, Period: 10 * time.Second, Algorithm: algorithms.SlidingLog}
	rule.Ban = ratelimit.Ban{After: 3, Within: time.Hour, For: 30 * time.Minute}
	f := newFleet(t, 50, rule)
	passed := func(m *ratelimit.Middleware) bool { return serve(m.Handler(ok), "POST /").Code == http.StatusNoContent }
	for i := range 5 {
		if got := passed(f.all[i]); got != (i < 2) {
			t.Fatalf("request %d: %v", i, got)
		}
	}
	for step := range 150 { // one in 12 seconds, which the limit would admit
		if passed(f.all[step*7%50]) {
			t.Fatalf("passed after %d requests", step)
		}
		f.clock.Advance(11500 * time.Millisecond)
	}
	f.clock.Advance(75 * time.Second)
	late := f.join(t, rule) // who knows nothing yet
	for i := range 4 {
		if got := passed(late); got != (i < 2) {
			t.Errorf("after the ban, request %d: %v", i, got)
		}
	}
	if isBanned(t, f.all[0]) {
		t.Error("strikes from before the ban, or of it, count")
	}
}

// A ban that has begun holds while the store is away, whatever the rule's fail mode: in the
// process that began it, and in those that have met it.
func TestABanHoldsInAnOutage(t *testing.T) {
	modes := map[string]failmode.Mode{"local": failmode.Local, "open": failmode.Open, "closed": failmode.Closed}
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			rule := banning(1)
			rule.Fail = mode
			f := newFleet(t, 3, rule)
			times(4, f.all[0].Handler(ok), "POST /") // the last one begins it
			serve(f.all[1].Handler(ok), "POST /")
			if err := f.all[2].Ban(t.Context(), "login", 2*time.Hour, "192.0.2.7"); err != nil {
				t.Fatal(err)
			}
			f.proxy.Refuse()
			f.proxy.Cut()
			outage := func(m *ratelimit.Middleware, addr string) *httptest.ResponseRecorder {
				return do(m.Handler(ok), from(addr, request("POST /")))
			}
			for range 20 {
				for i, m := range f.all[:2] {
					if w := outage(m, "192.0.2.1"); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") < "86000" {
						t.Fatalf("process %d: %d %v", i, w.Code, w.Header())
					}
				}
				if w := outage(f.all[2], "192.0.2.7"); w.Code != http.StatusTooManyRequests || len(w.Header().Get("Retry-After")) != 4 {
					t.Fatalf("by hand: %d %v", w.Code, w.Header())
				}
			}
			for range 20 { // no strikes
				outage(f.all[0], "192.0.2.9")
			}
			if err := f.all[0].Ban(t.Context(), "login", time.Hour, "192.0.2.8"); err == nil {
				t.Error("banned by hand without an answer")
			}
			f.proxy.Resume(t)
			for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
				if err := f.all[0].Ban(t.Context(), "login", 0, "192.0.2.8"); err == nil {
					break
				} else if time.Now().After(deadline) {
					t.Fatal(err)
				}
			}
			for range 2 { // one passes, and one is the first strike
				outage(f.all[0], "192.0.2.9")
			}
			if w := outage(f.all[0], "192.0.2.9"); w.Code != http.StatusTooManyRequests || len(w.Header().Get("Retry-After")) > 4 {
				t.Errorf("banned by denials of the outage: %d %v", w.Code, w.Header())
			}
		})
	}
}

// A strikeless limiter loses the answers about strikes and bans.
type strikeless struct {
	algorithms.Limiter
	late  bool // they were counted all the same
	loses atomic.Bool
}

func (s *strikeless) Unwrap() algorithms.Limiter { return s.Limiter }

func (s *strikeless) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	if !strings.Contains(checks[0].Rule, "~") || !s.loses.Load() {
		return s.Limiter.Take(ctx, checks...)
	}
	if s.late {
		_, _ = s.Limiter.Take(ctx, checks...)
	}
	return algorithms.Decision{}, fmt.Errorf("lost: %w", context.DeadlineExceeded)
}

// An answer about a strike that is late or lost bans nobody, and no fail mode takes its place.
func TestWhatTheStoreHasNotAnsweredBansNobody(t *testing.T) {
	for _, late := range []bool{false, true} {
		for _, mode := range []failmode.Mode{failmode.Local, failmode.Open, failmode.Closed} {
			lossy := &strikeless{Limiter: new(algorithms.Memory), late: late}
			rule := banning(1)
			rule.Fail = mode
			m := mustNew(t, ratelimit.Config{Limiter: guard(t, lossy, 1), Rules: []ratelimit.Rule{rule}})
			lossy.loses.Store(true)
			times(4, m.Handler(ok), "POST /") // three denials, which open no circuit yet
			if isBanned(t, m) {
				t.Fatalf("late %v, %s: banned without an answer", late, mode)
			}
			if lossy.loses.Store(false); !late {
				if times(2, m.Handler(ok), "POST /"); isBanned(t, m) {
					t.Fatalf("%s: banned at the second strike that was counted", mode)
				}
			}
			if times(1, m.Handler(ok), "POST /"); !isBanned(t, m) {
				t.Errorf("late %v, %s: not banned by strikes that were counted", late, mode)
			}
		}
	}
}

// After a lift, strikes count anew, also in a process that was told before that there is no
// room for more.
func TestALiftIsNoHalfMeasure(t *testing.T) {
	f := newFleet(t, 2, banning(1))
	a, b := f.all[0], f.all[1]
	times(4, b.Handler(ok), "POST /")
	if !isBanned(t, a) {
		t.Fatal("not banned")
	}
	if err := a.Ban(t.Context(), "login", 0, "192.0.2.1"); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); len(serve(b.Handler(ok), "POST /").Header().Get("Retry-After")) > 4; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) { // it asks once a second
			t.Fatal("still banned where it began")
		}
	}
	if serve(b.Handler(ok), "POST /"); isBanned(t, a) {
		t.Error("the second strike after the lift bans")
	}
	if serve(b.Handler(ok), "POST /"); !isBanned(t, a) {
		t.Error("the third does not")
	}
}

// Only a status that was written is a strike: our own bugs ban nobody.
func TestOnlyAWrittenStatusStrikes(t *testing.T) {
	for name, c := range map[string]struct {
		end  http.HandlerFunc
		bans bool
	}{
		"401": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }, true},
		"401, then a panic": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			panic(http.ErrAbortHandler)
		}, true},
		"nothing":    {func(http.ResponseWriter, *http.Request) {}, false},
		"204":        {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }, false},
		"a panic":    {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, false},
		"taken over": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusSwitchingProtocols) }, false},
		"settled, then 401": {func(w http.ResponseWriter, r *http.Request) {
			_ = ratelimit.Settle(r.Context(), "login", 0)
			w.WriteHeader(http.StatusUnauthorized)
		}, false},
		"the client hung up": {func(w http.ResponseWriter, r *http.Request) {
			r.Context().Value(hangUp{}).(func())()
			w.WriteHeader(http.StatusUnauthorized)
		}, true},
		"the client hung up, then 204": {func(w http.ResponseWriter, r *http.Request) {
			r.Context().Value(hangUp{}).(func())()
			w.WriteHeader(http.StatusNoContent)
		}, false},
	} {
		r := failures(100)
		r.Ban = ratelimit.Ban{After: 3, Within: time.Hour, For: time.Hour}
		m := inMemory(t, r)
		h := m.Handler(c.end)
		for i := range 3 {
			if isBanned(t, m) {
				t.Errorf("%s: banned after %d", name, i)
			}
			func() {
				defer func() { _ = recover() }()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				h.ServeHTTP(httptest.NewRecorder(), request("POST /").WithContext(context.WithValue(ctx, hangUp{}, func() { cancel() })))
			}()
		}
		if isBanned(t, m) != c.bans {
			t.Errorf("%s: banned: %v", name, !c.bans)
		}
	}
}

type hangUp struct{}

// By hand a client is banned for as long as said, also if it is said twice, and never for less
// than before. A lift forgets the strikes.
func TestBansByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := inMemory(t, banning(1), perHour("plain", 100))
		ban := func(d time.Duration) {
			t.Helper()
			if err := m.Ban(t.Context(), "login", d, "192.0.2.1"); err != nil {
				t.Error(err)
			}
		}
		about := func(want time.Duration) {
			t.Helper()
			if rest := bannedFor(t, m); rest < want || want == 0 && rest > 0 || rest > want+time.Second {
				t.Errorf("banned for %s, want %s", rest, want)
			}
		}
		for _, d := range []time.Duration{time.Millisecond, time.Second, 90 * time.Second, time.Hour, 48 * time.Hour, 70 * 365 * 24 * time.Hour} {
			for range 5 {
				ban(d)
				about(max(d.Truncate(time.Second), time.Second))
				ban(d / 2)
				about(max(d.Truncate(time.Second), time.Second))
			}
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() { ban(d) })
			}
			all.Wait()
			about(max(d.Truncate(time.Second), time.Second))
		}
		ban(0)
		ban(0)
		about(0)

		times(3, m.Handler(ok), "POST /") // two strikes
		ban(0)
		times(2, m.Handler(ok), "POST /")
		about(0)
		times(1, m.Handler(ok), "POST /")
		about(24 * time.Hour)
		ban(time.Hour)
		about(24 * time.Hour)
		ban(48 * time.Hour)
		about(48 * time.Hour)
		time.Sleep(48*time.Hour + time.Second)
		about(0)
		times(3, m.Handler(ok), "POST /") // one passes, two strikes
		about(0)
		ban(time.Hour)
		if err := m.Limiter().Reset(t.Context(), checksOf(t, m, "login", "192.0.2.1")...); err != nil {
			t.Error(err)
		}
		about(0)

		for what, err := range map[string]error{
			"has no Ban":    m.Ban(t.Context(), "plain", time.Hour, "192.0.2.1"),
			"at most 70 ye": m.Ban(t.Context(), "login", 71*365*24*time.Hour, "192.0.2.1"),
			"positive":      m.Ban(t.Context(), "login", -1, "192.0.2.1"),
			"key:":          m.Ban(t.Context(), "login", time.Hour),
			"no such rule":  m.Ban(t.Context(), "other", time.Hour, "192.0.2.1"),
		} {
			if err == nil || !strings.Contains(err.Error(), what) {
				t.Errorf("%q: %v", what, err)
			}
		}
		if about(0); !errors.Is(m.Ban(t.Context(), "other", time.Hour, "192.0.2.1"), ratelimit.ErrNoRule) {
			t.Error("no ErrNoRule")
		}
	})
}

// Bans are never counted together with other keys: a full Memory bans nobody else. Beyond twice
// its keys, nothing is counted, and a ban by hand says so.
func TestBansInAFullMemory(t *testing.T) {
	rule := banning(1)
	rule.Key = keyfunc.Header("Key")
	m := mustNew(t, ratelimit.Config{Limiter: &algorithms.Memory{MaxKeys: 1}, Rules: []ratelimit.Rule{rule}})
	h := m.Handler(ok)
	for i := range 2000 { // all are denied by shared counts, sooner or later
		times(6, h, "POST /", "Key", fmt.Sprint("flood", i))
	}
	for i := range 200 {
		if d, err := m.Peek(request("POST /", "Key", fmt.Sprint("other", i))); err != nil || d.Results[0].BannedFor > 0 {
			t.Fatalf("%+v %v", d, err)
		}
	}
	failed := 0
	for i := range 200 {
		key := fmt.Sprint("by hand", i)
		err := m.Ban(t.Context(), "login", time.Hour, key)
		if d, peekErr := m.Peek(request("POST /", "Key", key)); peekErr != nil || d.Results[0].BannedFor > 0 != (err == nil) {
			t.Fatalf("%s: %v %+v", key, err, d)
		}
		if err != nil && strings.Contains(err.Error(), "MaxKeys") {
			failed++
		}
	}
	if failed == 0 {
		t.Error("MaxKeys bounds nothing")
	}
}

// Bans are as long as said, in whole seconds, and begin at the strike that is said.
func TestHowLongAndWhen(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, c := range []struct {
		ban  ratelimit.Ban
		rest time.Duration
	}{
		{ratelimit.Ban{After: 1, For: 500 * time.Millisecond}, time.Second},
		{ratelimit.Ban{After: 1, For: 90*time.Second + 1}, 91 * time.Second},
		{ratelimit.Ban{After: 2, For: 70 * year}, 70 * year},
		{ratelimit.Ban{After: 10_001, Within: year, For: time.Hour}, time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := perHour("r", 1)
			r.Ban = c.ban
			m := inMemory(t, r)
			times(int(c.ban.After), m.Handler(ok), "POST /") // the first one passes
			if isBanned(t, m) {
				t.Errorf("%+v: too early", c.ban)
			}
			w := serve(m.Handler(ok), "POST /")
			if rest := bannedFor(t, m); rest != c.rest || w.Code != http.StatusTooManyRequests {
				t.Errorf("%+v: banned for %s, %d", c.ban, rest, w.Code)
			}
		})
	}
}

// With ChargeOn only responses strike, so the limits must admit as many as lead to the ban: at
// the moment that is best for the client, and by this process's share.
func TestABanThatCannotComeIsRefused(t *testing.T) {
	log := algorithms.Limit{Rate: 10, Period: time.Minute, Algorithm: algorithms.SlidingLog}
	for _, c := range []struct {
		limits []algorithms.Limit
		cost   int64
		share  float64
		within time.Duration // 0 is the period
		most   int64
	}{
		{limits: []algorithms.Limit{log}, most: 10},
		{limits: []algorithms.Limit{log}, within: 10 * time.Second, most: 10},
		{limits: []algorithms.Limit{log}, within: 119 * time.Second, most: 20},
		{limits: []algorithms.Limit{log}, within: 2 * time.Minute, most: 20},
		{limits: []algorithms.Limit{log}, share: 0.5, most: 5},
		{limits: []algorithms.Limit{log}, cost: 3, most: 3},
		{limits: []algorithms.Limit{algorithms.PerMinute(10)}, most: 19},
		{limits: []algorithms.Limit{algorithms.PerMinute(10)}, within: 119 * time.Second, most: 29},
		{limits: []algorithms.Limit{algorithms.PerMinute(10)}, cost: 3, most: 6},
		{limits: []algorithms.Limit{algorithms.PerMinute(10)}, cost: 5, most: 3},
		{limits: []algorithms.Limit{fixedIn(5, time.Minute)}, most: 10},
		{limits: []algorithms.Limit{fixedIn(5, time.Minute)}, within: time.Second, most: 10},
		{limits: []algorithms.Limit{fixedIn(5, time.Minute)}, within: 119 * time.Second, most: 15},
		{limits: []algorithms.Limit{fixedIn(10, time.Minute)}, cost: 3, share: 0.9, most: 6},
		{limits: []algorithms.Limit{fixedIn(5, time.Minute), fixedIn(8, time.Hour)}, within: 10 * time.Minute, most: 16},
		{limits: []algorithms.Limit{fixedIn(5, time.Minute), algorithms.PerMonth(8, "UTC")}, within: 10 * time.Minute, most: 16},
	} {
		r := ratelimit.Rule{Name: "login", Key: keyfunc.IP, Limits: c.limits, Cost: c.cost, ChargeOn: []int{401}}
		within := cmp.Or(c.within, time.Minute)
		for after, fails := range map[int64]bool{c.most: false, c.most + 1: true} {
			banning := r
			banning.Ban = ratelimit.Ban{After: after, Within: within, For: 24 * time.Hour}
			_, err := ratelimit.New(ratelimit.Config{Rules: []ratelimit.Rule{banning}, Share: c.share})
			if fails != (err != nil) || err != nil && !strings.Contains(err.Error(), "write a longer within or a lower after") {
				t.Errorf("%v, %+v: %v", c.limits, banning.Ban, err)
			}
		}
		synctest.Test(t, func(t *testing.T) {
			h := mustNew(t, ratelimit.Config{Rules: []ratelimit.Rule{r}, Share: c.share}).Handler(answered(http.StatusUnauthorized, 0))
			time.Sleep(time.Until(time.Date(2000, 1, 31, 23, 58, 59, 900e6, time.UTC)))
			came := int64(0)
			for begun := time.Now(); time.Since(begun) < within; time.Sleep(100 * time.Millisecond) {
				for serve(h, "POST /").Code == http.StatusUnauthorized {
					came++
				}
			}
			if came > c.most || came < c.most-1 { // New may let one too many pass
				t.Errorf("%v, within %s: %d responses came, want at most %d", c.limits, within, came, c.most)
			}
		})
	}
}

// An error at a ban's key is one of the rule: it follows the rule's fail mode.
func TestAForeignValueAtABan(t *testing.T) {
	client := redistest.Start(t).Client(t)
	var log bytes.Buffer // read when the guard is closed
	guard := &failmode.Guard{Limiter: &algorithms.Redis{Client: client, Namespace: "test", Budget: time.Second}, Instances: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	t.Cleanup(func() { _ = guard.Close() })
	m := mustNew(t, ratelimit.Config{Limiter: guard, Rules: []ratelimit.Rule{banning(2), perHour("other", 100)}})
	times(1, m.Handler(ok), "POST /")
	keys := client.Keys(t.Context(), "*login~*").Val()
	if len(keys) > 0 {
		t.Errorf("a look has written %v", keys)
	}
	if err := m.Ban(t.Context(), "login", time.Hour, "192.0.2.1"); err != nil {
		t.Fatal(err)
	}
	keys = client.Keys(t.Context(), "*~ban*").Val()
	if len(keys) != 1 || !strings.Contains(keys[0], "{192.0.2.1}:login~ban:") || m.Ban(t.Context(), "login", 0, "192.0.2.1") != nil {
		t.Fatal(keys)
	}
	client.Set(t.Context(), keys[0], "something else", 0)
	if d, err := guard.Limiter.Peek(t.Context(), checksOf(t, m, "login", "192.0.2.1")...); err != nil || d.Allowed || d.Results[0].Err != nil || d.Results[2].Err == nil {
		t.Errorf("%+v %v", d, err)
	}
	if w := serve(m.Handler(ok), "POST /"); w.Code != http.StatusNoContent { // the look is decided locally, in every mode
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if err := m.Ban(t.Context(), "login", time.Hour, "192.0.2.1"); err == nil || !strings.Contains(err.Error(), keys[0]) {
		t.Errorf("by hand: %v", err)
	}
	if err := m.Ban(t.Context(), "login", 0, "192.0.2.1"); err != nil {
		t.Errorf("a lift deletes it: %v", err)
	}
	_ = guard.Close()
	if !strings.Contains(log.String(), "foreign value at key "+keys[0]) {
		t.Errorf("logged: %s", log.String())
	}
}

func checksOf(t *testing.T, m *ratelimit.Middleware, rule string, values ...string) []algorithms.Check {
	t.Helper()
	checks, err := m.Checks(rule, values...)
	if err != nil {
		t.Fatal(err)
	}
	return checks
}

func TestABanIsSaidLoggedAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		registry := prometheus.NewRegistry()
		observed := 0
		m := measured(t, registry, ratelimit.Config{
			Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{banning(2), perHour("plain", 100)},
			Logger: slog.New(slog.NewTextHandler(&log, nil)), DenialLogRate: 100,
			Observe: func(_ *http.Request, d algorithms.Decision) {
				observed++
				if len(d.Results) != 2 {
					t.Errorf("%d results", len(d.Results))
				}
			},
		})
		h := m.Handler(ok)
		wantBans(t, registry, map[string]float64{"bans_total login": 0, "banned_total login": 0})
		times(4, h, "POST /")
		if strings.Contains(log.String(), "banned") {
			t.Errorf("not yet: %s", &log)
		}
		w := serve(h, "POST /")
		if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "86400" || !strings.Contains(w.Body.String(), headers.AbnormalUsageDetected) ||
			w.Header().Get("X-RateLimit-Remaining") != "0" || strings.Contains(fmt.Sprint(w.Header(), w.Body, &log), "~") {
			t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
		}
		if !strings.Contains(log.String(), "retry_after=24h0m0s") || !strings.Contains(log.String(), "banned=true") {
			t.Error(&log)
		}
		times(6, h, "POST /")
		wantBans(t, registry, map[string]float64{"bans_total login": 1, "banned_total login": 7})
		wantDecisions(t, registry, map[string]float64{
			"sliding_window allowed login memory": 2, "sliding_window denied login memory": 9, "sliding_window allowed plain memory": 11,
		})
		for name := range gather(t, registry) {
			if strings.Contains(name, "~") {
				t.Errorf("a metric of a ban's own counts: %s", name)
			}
		}
		if observed != 11 {
			t.Errorf("observed %d", observed)
		}
	})
}

// A ban by responses is counted and logged, although no decision tells of it.
func TestABanByResponsesIsCounted(t *testing.T) {
	var log bytes.Buffer
	registry := prometheus.NewRegistry()
	r := failures(3)
	r.Ban = ratelimit.Ban{After: 2, For: 2 * time.Hour}
	m := measured(t, registry, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{r}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	times(3, m.Handler(answered(http.StatusUnauthorized, 0)), "POST /")
	wantBans(t, registry, map[string]float64{"bans_total login": 1, "banned_total login": 1})
	if !strings.Contains(log.String(), "ratelimit: banned") {
		t.Error(&log)
	}
}

// A response is a strike if the store answers when its status is written, also if this process
// has charged the request.
func TestAResponseAfterAnOutageIsAStrike(t *testing.T) {
	for _, recovers := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s, r := new(store), failures(3)
			r.Ban = ratelimit.Ban{After: 1, For: 2 * time.Hour}
			m := mustNew(t, ratelimit.Config{Limiter: guard(t, s, 1), Rules: []ratelimit.Rule{r}})
			away(s)
			_ = within(t, m, func(_ context.Context, w http.ResponseWriter) error {
				if recovers {
					s.err.Store(nil)
				}
				time.Sleep(10 * time.Second) // takes no time
				w.WriteHeader(http.StatusUnauthorized)
				return nil
			})
			if s.err.Store(nil); isBanned(t, m) != recovers {
				t.Errorf("banned: %t, and the store has recovered before: %t", !recovers, recovers)
			}
		})
	}
}

func wantBans(t testing.TB, r prometheus.Gatherer, want map[string]float64) {
	t.Helper()
	got := gather(t, r)
	maps.DeleteFunc(got, func(name string, _ float64) bool { return !strings.HasPrefix(name, "ban") })
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A limiter that denies everything for a test bans nobody.
func TestDenyBansNobody(t *testing.T) {
	for _, rule := range []string{"", "login"} {
		m := mustNew(t, ratelimit.Config{Limiter: limitertest.Deny(rule, time.Minute), Rules: []ratelimit.Rule{banning(1)}})
		for range 5 {
			if w := serve(m.Handler(ok), "POST /"); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "60" || strings.Contains(w.Body.String(), headers.AbnormalUsageDetected) {
				t.Fatalf("%q: %d %v %s", rule, w.Code, w.Header(), w.Body)
			}
		}
	}
}

// A client in shadow is neither banned nor counted towards a ban; and what others have begun stays.
func TestBansOfRulesThatAreNotEnforced(t *testing.T) {
	enforced, shadow, plain := banning(1), banning(1), banning(1)
	shadow.Shadow, plain.Ban = true, ratelimit.Ban{}
	m := inMemory(t, enforced)
	h := m.Handler(ok)
	set := func(r ratelimit.Rule) {
		t.Helper()
		setRules(t, m, r)
	}
	times(3, h, "POST /") // two denials
	set(shadow)
	times(5, h, "POST /")
	set(plain)
	times(5, h, "POST /")
	set(enforced)
	if isBanned(t, m) {
		t.Error("denials counted that nobody enforced, or of a rule without a ban")
	}
	times(1, h, "POST /")
	if !isBanned(t, m) {
		t.Error("the third denial has not banned")
	}
	if set(shadow); serve(h, "POST /").Code != http.StatusNoContent {
		t.Error("banned by a rule in shadow")
	}
	set(plain) // without its Ban for a time
	for range 2 {
		enforced.Limit.Rate += 1000
		if set(enforced); !isBanned(t, m) || serve(h, "POST /").Code != http.StatusTooManyRequests {
			t.Error("SetRules has lifted the ban")
		}
	}
	enforced.Limit = algorithms.Limit{Rate: 100, Period: time.Minute, Algorithm: algorithms.TokenBucket}
	if set(enforced); !isBanned(t, m) {
		t.Error("another algorithm has lifted the ban")
	}
}

// A limiter that charges looks is told so, and a ban denies a free request whose own limit is
// not decided.
func TestLooksByOddLimiters(t *testing.T) {
	rule := banning(100)
	rule.Ban.After = 1
	var log bytes.Buffer
	naive := &hook{check: func(c *algorithms.Check) { c.Look = false }}
	m := mustNew(t, ratelimit.Config{Limiter: naive, Rules: []ratelimit.Rule{rule}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if w := serve(m.Handler(ok), "POST /"); w.Code != http.StatusServiceUnavailable || !strings.Contains(log.String(), "Check.Look") {
		t.Errorf("naive: %d, logged %s", w.Code, &log)
	}

	rule.CostFor = func(*http.Request) int64 { return 0 }
	partial := &hook{peeked: func(r *algorithms.Result) error {
		if !r.Check.Look && !r.Check.StoreOnly {
			*r = algorithms.Result{Check: r.Check, Err: context.DeadlineExceeded}
		}
		return nil
	}}
	m = mustNew(t, ratelimit.Config{Limiter: partial, Rules: []ratelimit.Rule{rule}})
	if err := m.Ban(t.Context(), "login", time.Hour, "192.0.2.1"); err != nil {
		t.Fatal(err)
	}
	if w := serve(m.Handler(ok), "POST /"); w.Code != http.StatusTooManyRequests {
		t.Errorf("free: %d", w.Code)
	}
}

// A strike waits once, and the one that bans a little longer. A store that is slow, but within
// the budget of each command, bans all the same.
func TestStrikesOnASlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := distant(t, limitertest.Redis(t), 45*time.Millisecond)
		rule := banning(1)
		rule.Ban.After = 2
		h := mustNew(t, ratelimit.Config{Limiter: guard, Rules: []ratelimit.Rule{rule}}).Handler(ok)
		for i, most := range []time.Duration{budget, 2 * budget, 4 * budget, budget} { // admitted, a strike, the ban, banned
			begun := time.Now()
			w := serve(h, "POST /")
			if time.Since(begun) > most {
				t.Errorf("request %d: %s", i, time.Since(begun))
			}
			if after := w.Header().Get("Retry-After"); (after == "86400") != (i >= 2) {
				t.Errorf("request %d: Retry-After %q", i, after)
			}
		}
	})
}
