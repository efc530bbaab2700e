package middleware_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/headers"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// logged returns a handler with the log that it writes, without times.
func logged(t testing.TB, c ratelimit.Config) (*ratelimit.Middleware, *bytes.Buffer) {
	t.Helper()
	log := new(bytes.Buffer)
	c.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	m := mustNew(t, c)
	log.Reset() // of hints
	return m, log
}

// lines empties a log.
func lines(log *bytes.Buffer) []string {
	defer log.Reset()
	return strings.FieldsFunc(log.String(), func(r rune) bool { return r == '\n' })
}

// A denial that no wait ends has no time to wait, in the log as in the headers. One in shadow
// says so.
func TestWhatTheLineOfADenialSays(t *testing.T) {
	never := perHour("r", 1)
	never.CostFor = func(*http.Request) int64 { return 2 }
	for want, c := range map[string]struct {
		limiter algorithms.Limiter
		rule    ratelimit.Rule
		status  int
	}{
		"source=memory limit=1/1h cost=2 suppressed=0\n": {new(algorithms.Memory), never, http.StatusTooManyRequests},
		"limit=1/1h cost=1 suppressed=0 shadow=true\n":   {&hook{check: func(c *algorithms.Check) { c.Shadow = true }}, perHour("r", 1), http.StatusNoContent},
	} {
		m, log := logged(t, ratelimit.Config{Limiter: c.limiter, Rules: []ratelimit.Rule{c.rule}})
		times(1, m.Handler(ok), "GET /")
		if w := serve(m.Handler(ok), "GET /"); w.Code != c.status || strings.Count(log.String(), "ratelimit: denied") != 1 || !strings.HasSuffix(log.String(), want) {
			t.Errorf("status %d, logged %s; want %s", w.Code, log, want)
		}
	}
}

func TestDenialsAreLoggedInSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		login := perHour("login", 20, "POST /login")
		login.Cost = 20
		m, log := logged(t, ratelimit.Config{Limiter: new(algorithms.Memory), LogKeys: true, Rules: []ratelimit.Rule{
			login, {Name: "per-ip", Key: keyfunc.IP, Limit: algorithms.Limit{Rate: 6, Period: time.Hour, Algorithm: algorithms.FixedWindow}},
		}})
		h := m.Handler(ok)
		want := func(want ...string) {
			t.Helper()
			if got := lines(log); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("logged\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
		serve(h, "POST /login")
		times(3, h, "GET /")
		want() // nothing was denied
		times(20, h, "POST /login")
		want(`level=INFO msg="ratelimit: denied" rule=login key=192.0.2.1 algorithm=sliding_window source=memory retry_after=2h0m0s limit=20/1h cost=20 suppressed=0`)
		time.Sleep(500 * time.Millisecond)
		times(10, h, "POST /login")
		want()
		times(2, h, "GET /")
		times(5, h, "GET /") // another rule has its own second
		want(`level=INFO msg="ratelimit: denied" rule=per-ip key=192.0.2.1 algorithm=fixed_window source=memory retry_after=59m59.5s limit="6/1h fixed_window" cost=1 suppressed=0`)
		time.Sleep(time.Minute)
		want() // no timers
		times(1, h, "GET /")
		want(`level=INFO msg="ratelimit: denied" rule=per-ip key=192.0.2.1 algorithm=fixed_window source=memory retry_after=58m59.5s limit="6/1h fixed_window" cost=1 suppressed=4`)

		// What was left out is remembered by the rule of the same name.
		setRules(t, m, login)
		want(`level=INFO msg="ratelimit: rules replaced" rules=1 generation=2 added=[] removed=[per-ip] changed=[]`)
		times(1, h, "POST /login")
		want(`level=INFO msg="ratelimit: denied" rule=login key=192.0.2.1 algorithm=sliding_window source=memory retry_after=1h58m59.5s limit=20/1h cost=20 suppressed=29`)
	})
}

func TestHowManyDenialsAreLogged(t *testing.T) {
	for most, want := range map[int]int{-1: 0, 0: 2, 1: 2, 3: 6, math.MaxInt: 14} {
		synctest.Test(t, func(t *testing.T) {
			m, log := logged(t, ratelimit.Config{Limiter: new(algorithms.Memory), DenialLogRate: most, Rules: []ratelimit.Rule{perHour("r", 1)}})
			h := m.Handler(ok)
			times(8, h, "GET /")
			time.Sleep(time.Second)
			times(7, h, "GET /")
			if got := len(lines(log)); got != want {
				t.Errorf("DenialLogRate %d: %d lines, want %d", most, got, want)
			}
		})
	}
}

func TestKeysAreHashedUnlessAskedFor(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	rules := []ratelimit.Rule{{Name: "user", Key: keyfunc.Header("User"), Limit: algorithms.PerHour(1)}, perHour("per-ip", 1e6)}
	for _, inClear := range []bool{false, true} {
		m, log := logged(t, ratelimit.Config{Limiter: new(algorithms.Memory), DenialLogRate: 100, LogKeys: inClear, Rules: rules})
		h := m.Handler(ok)
		seen := make(map[string]string)
		for user, most := range map[string]int{"alice": 4, "bob": 3, long: 5, "": 6} {
			for range most + 1 {
				if user == "" {
					serve(h, "GET /")
				} else {
					serve(h, "GET /", "User", user)
				}
			}
			for _, line := range lines(log) {
				_, rest, _ := strings.Cut(line, " key=")
				shown, _, _ := strings.Cut(rest, " ")
				if before, again := seen[user]; again && before != shown {
					t.Errorf("a key is %q, then %q", before, shown)
				}
				seen[user] = shown
				if len(line) > 400 {
					t.Errorf("a line of %d bytes", len(line))
				}
			}
		}
		if seen[""] != `""` || strings.Contains(seen["alice"], "alice") != inClear || seen["alice"] == seen["bob"] {
			t.Errorf("LogKeys %t: %v", inClear, seen)
		}
		var top []string
		for _, k := range m.TopDenied(10) {
			top = append(top, fmt.Sprintf("%s %q %d±%d", k.Rule, k.Key, k.Count, k.Error))
		}
		var want []string
		for i, user := range []string{"", long, "alice", "bob"} {
			want = append(want, fmt.Sprintf("user %q %d±0", strings.Trim(seen[user], `"`), 6-i))
		}
		if fmt.Sprint(top) != fmt.Sprint(want) {
			t.Errorf("TopDenied is\n%v, the log says\n%v", top, want)
		}
		if got := m.TopDenied(2); len(got) != 2 || got[0].Count != 6 || len(m.TopDenied(0)) != 0 || len(m.TopDenied(-1)) != 0 {
			t.Errorf("the first two are %v", got)
		}
	}
}

func TestWhatChangedIsLogged(t *testing.T) {
	rules := []ratelimit.Rule{perHour("a", 10), perHour("b", 10, "GET /b"), perHour("c", 10), perHour("d", 10)}
	m, log := logged(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: rules})
	set := func(version int64, rules []ratelimit.Rule, want string) {
		t.Helper()
		err := m.SetRulesVersion(rules, version)
		if (err == nil) != (rules != nil) {
			t.Fatal(err)
		}
		if got := strings.Join(lines(log), "\n"); got != want {
			t.Errorf("logged\n%s\nwant\n%s", got, want)
		}
	}
	set(0, rules, "") // as a loader does when it begins
	set(0, nil, `level=ERROR msg="ratelimit: rules not replaced" error="middleware: rules: at least one is required" generation=2`)
	shadow, same := perHour("a", 20), perHour("d", 10)
	shadow.Shadow, shadow.Ban = true, ratelimit.Ban{After: 3, For: time.Hour}
	same.Cost, same.Limit.Algorithm = 1, algorithms.SlidingWindow // the defaults
	next := []ratelimit.Rule{perHour("e", 10), same, perHour("b", 10, "GET /b", "POST /b"), shadow}
	set(7, next, `level=INFO msg="ratelimit: rules replaced" rules=4 generation=3 version=7 added=[e] removed=[c] `+
		`changed="[b a]"`)
	set(8, next, `level=INFO msg="ratelimit: rules set again" rules=4 generation=4 version=8`)
	set(0, next, `level=INFO msg="ratelimit: rules set again" rules=4 generation=5`)

	overridden := func(rate int64) []ratelimit.Rule {
		r := perHour("a", 10)
		r.Overrides = []ratelimit.Override{{Client: []string{"192.0.2.1"}, Limits: []algorithms.Limit{algorithms.PerHour(rate)}}}
		return []ratelimit.Rule{r}
	}
	if err := m.SetRules(overridden(20)); err != nil {
		t.Fatal(err)
	}
	lines(log)
	set(0, overridden(30), `level=INFO msg="ratelimit: rules replaced" rules=1 generation=7 added=[] removed=[] changed=[a]`)
}

// With one secret, what processes say of a key can be joined.
func TestKeysOfTwoProcessesCanBeJoined(t *testing.T) {
	shown := func(secret string) string {
		m := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), LogSecret: []byte(secret), Rules: []ratelimit.Rule{perHour("a", 1)}})
		times(2, m.Handler(ok), "GET /")
		return m.TopDenied(1)[0].Key
	}
	const one, two = "0123456789abcdef", "0123456789abcdeg"
	if a := shown(one); a != shown(one) || a == shown(two) || len(a) != 16 {
		t.Error(a, shown(one), shown(two))
	}
	for _, secret := range [][]byte{{}, []byte(one[1:])} {
		_, err := ratelimit.New(ratelimit.Config{Limiter: new(algorithms.Memory), LogSecret: secret, Rules: []ratelimit.Rule{perHour("a", 1)}})
		if err == nil || !strings.Contains(err.Error(), "log secret: has ") || !strings.Contains(err.Error(), "use 32 random ones") {
			t.Error(err)
		}
	}
}

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
