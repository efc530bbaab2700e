package middleware_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/internal/view"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
	"github.com/seed75154129/ratelimit/middleware/admin"
)

var ok = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })

// serve sends one request, as "POST /auth/login" and any headers as pairs.
func serve(h http.Handler, line string, header ...string) *httptest.ResponseRecorder {
	return do(h, request(line, header...))
}

func request(line string, header ...string) *http.Request {
	method, target, _ := strings.Cut(line, " ")
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return r
}

// from is a request of another address than httptest's.
func from(address string, r *http.Request) *http.Request {
	r.RemoteAddr = address + ":1"
	return r
}

func do(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func setRules(t testing.TB, m *ratelimit.Middleware, rules ...ratelimit.Rule) {
	t.Helper()
	if err := m.SetRules(rules); err != nil {
		t.Fatal(err)
	}
}

func mustNew(t testing.TB, c ratelimit.Config) *ratelimit.Middleware {
	t.Helper()
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	m, err := ratelimit.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// guardOf is a Guard around a Redis with room for a busy machine.
func guardOf(t *testing.T, client algorithms.Client) *failmode.Guard {
	t.Helper()
	guard := &failmode.Guard{
		Limiter: &algorithms.Redis{Client: client, Namespace: "shop", Budget: 5 * time.Second},
		Logger:  slog.New(slog.DiscardHandler),
	}
	t.Cleanup(func() {
		if err := guard.Close(); err != nil {
			t.Error(err)
		}
	})
	return guard
}

func perHour(name string, rate int64, match ...string) ratelimit.Rule {
	return ratelimit.Rule{Name: name, Match: match, Key: keyfunc.IP, Limit: algorithms.PerHour(rate)}
}

func TestLayersAreOneDecision(t *testing.T) {
	user := ratelimit.Rule{Name: "per-user", Key: keyfunc.Optional(keyfunc.Header("User")), Limit: algorithms.PerHour(8)}
	m := mustNew(t, ratelimit.Config{
		Limiter: new(algorithms.Memory),
		Rules: []ratelimit.Rule{
			perHour("per-ip", 20),
			user,
			perHour("login", 5, "POST /auth/login", "POST /auth/register"),
		},
		Skip: []string{"GET /healthz"},
	})
	h := m.Handler(ok)

	// Two routes share the count of their rule.
	for i := range 5 {
		line := []string{"POST /auth/login", "POST /auth/register"}[i%2]
		w := serve(h, line, "User", "alice")
		if got, want := w.Header().Get("X-RateLimit-Remaining"), fmt.Sprint(min(4-i, 7-i)); w.Code != http.StatusNoContent || got != want {
			t.Errorf("%s %d: %d, remaining %s, want %s", line, i, w.Code, got, want)
		}
	}
	w := serve(h, "POST /auth/login", "User", "alice")
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" || w.Header().Get("X-RateLimit-Limit") != "5" {
		t.Errorf("the sixth: %d %v", w.Code, w.Header())
	}
	for range 50 { // denials charge nothing to the other layers
		serve(h, "POST /auth/register", "User", "alice")
	}
	if got := serve(h, "GET /api", "User", "alice").Header().Get("X-RateLimit-Remaining"); got != "2" {
		t.Errorf("per-user after 6 admitted requests: remaining %s, want 2", got)
	}
	if got := serve(h, "GET /api").Header().Get("X-RateLimit-Remaining"); got != "13" {
		t.Errorf("per-ip after 7 admitted requests: remaining %s, want 13", got)
	}
	for range 50 {
		if w := serve(h, "GET /healthz"); w.Code != http.StatusNoContent || len(w.Header()) != 0 {
			t.Fatalf("/healthz: %d %v", w.Code, w.Header())
		}
	}
}

// New reports every mistake, and those in rules as RuleErrors, whose text has the field as
// words.
func TestNewReportsEverythingAtOnce(t *testing.T) {
	_, err := ratelimit.New(ratelimit.Config{
		Limiter: new(failmode.Guard),
		Rules: []ratelimit.Rule{
			{Name: "login", Match: []string{"POST /auth/*", "example.com/x"}, Limit: algorithms.Limit{Rate: 0, Period: time.Minute, Burst: 3, Algorithm: algorithms.SlidingWindow}},
			{Name: "login", Key: keyfunc.IP, Limit: algorithms.PerMinute(5), Cost: 6},
			{Key: keyfunc.Func(nil), Limit: algorithms.Limit{Rate: 1, Period: time.Second, Burst: -1, Algorithm: algorithms.TokenBucket}},
			{Name: "per ip", Key: keyfunc.IP, Limit: algorithms.PerMinute(5), Cost: -1, Fail: 9, ChargeOn: []int{}},
			{Name: "own", Key: invalidKey{}, Limit: algorithms.PerMinute(5)},
			{Name: "two", Key: keyfunc.Hashed(keyfunc.BodyJSON("email", 0), []byte("short")), Limit: algorithms.PerMinute(5)},
			perHour("good", 5),
		},
		Skip: []string{"/u/:id"},
	})
	all := view.Each(err)
	want := []struct {
		index             int // of the rule; -1 for what is no RuleError
		field, text, rest string
	}{
		{-1, "", "limiter", "limiter: required; use &algorithms.Redis{"},
		{-1, "", "skip", `pattern "/u/:id": `},
		{0, "Match", `rule "login": match[0]`, `pattern "POST /auth/*": `},
		{0, "Match", `rule "login": match[1]`, `pattern "example.com/x": `},
		{0, "Key", `rule "login": key`, "required; use keyfunc.IP"},
		{0, "Limit", `rule "login": limit`, "rate must be at least 1, got 0"},
		{0, "Limit", `rule "login": limit`, "burst is for buckets, not for sliding_window"},
		{1, "Name", `rule "login": name`, "rules[0] and rules[1] have the same"},
		{1, "Cost", `rule "login": cost`, "6 is above the 5 units that the limit 5/1m can hold"},
		{2, "Name", "rules[2]: name", "required"},
		{2, "Key", "rules[2]: key", "required; use keyfunc.IP"},
		{2, "Limit", "rules[2]: limit", "burst must not be negative, got -1"},
		{3, "Name", `rule "per ip": name`, `' ' in "per ip"; use letters`},
		{3, "Cost", `rule "per ip": cost`, "must not be negative, got -1"},
		{3, "ChargeOn", `rule "per ip": charge on`, "empty"},
		{3, "Fail", `rule "per ip": fail`, "unknown fail mode 9"},
		{4, "Key", `rule "own": key`, "no database"},
		{5, "Key", `rule "two": key`, "keyfunc: BodyJSON: at most 0 bytes"},
		{5, "Key", `rule "two": key`, "keyfunc: Hashed: the secret has 5 bytes"},
	}
	if len(all) != len(want) {
		t.Fatalf("%d mistakes, want %d:\n%v", len(all), len(want), err)
	}
	for i, w := range want {
		if text := "middleware: " + w.text + ": " + w.rest; !strings.HasPrefix(all[i].Error(), text) {
			t.Errorf("%v, want %s", all[i], text)
		}
		got, is := errors.AsType[*ratelimit.RuleError](all[i])
		if is != (w.index >= 0) || is && (got.Index != w.index || got.Field != w.field || got.Err == nil || !errors.Is(all[i], got.Err)) {
			t.Errorf("%#v, want %+v", all[i], w)
		}
	}
	if got, is := errors.AsType[*ratelimit.RuleError](ratelimit.ValidateRules(nil)); !is || got.Index != -1 || got.Error() != "middleware: rules: at least one is required" {
		t.Errorf("%#v", got)
	}
}

type invalidKey struct{ keyfunc.Described }

func (invalidKey) Validate() error { return errors.New("no database") }

func TestNoKeyIsNeverNoLimit(t *testing.T) {
	fail := errors.New("database is down")
	for name, c := range map[string]struct {
		key      keyfunc.Key
		statuses []int
	}{
		"no key shares one count":       {keyfunc.Header("User"), []int{204, 204, 429}},
		"an empty key is no key":        {keyfunc.Func(func(*http.Request) (string, error) { return "", nil }), []int{204, 204, 429}},
		"skipping is a choice":          {keyfunc.Optional(keyfunc.Header("User")), []int{204, 204, 204}},
		"other errors refuse":           {keyfunc.Func(func(*http.Request) (string, error) { return "", fail }), []int{500, 500, 500}},
		"required, with a status":       {keyfunc.Required(keyfunc.Header("User"), 401), []int{401, 401, 401}},
		"a status that is no refusal":   {keyfunc.Func(func(r *http.Request) (string, error) { return "", refusal(r.RequestURI) }), []int{500, 500, 500, 500, 500, 500}},
		"a key beside an error is none": {keyfunc.Func(func(r *http.Request) (string, error) { return r.RequestURI, keyfunc.ErrNoKey }), []int{204, 204, 429}},
	} {
		t.Run(name, func(t *testing.T) {
			m := mustNew(t, ratelimit.Config{
				Limiter: new(algorithms.Memory),
				Rules:   []ratelimit.Rule{{Name: "r", Key: c.key, Limit: algorithms.PerHour(2)}},
			})
			h := m.Handler(ok)
			for i, want := range c.statuses {
				w := serve(h, fmt.Sprint("GET /", i))
				if w.Code != want {
					t.Errorf("request %d: %d, want %d", i, w.Code, want)
				}
				if refused := want != 429 && want >= 400; refused && (w.Body.String() != http.StatusText(want)+"\n" || len(w.Header()) != 3 || w.Header().Get("Cache-Control") != "no-store") {
					t.Errorf("the client reads more than the status: %v %s", w.Header(), w.Body)
				}
			}
		})
	}
}

// refusal has a status that must not become one of a response.
func refusal(path string) error {
	return &keyfunc.StatusError{Status: map[string]int{"/0": 0, "/1": 100, "/2": 200, "/3": 302, "/4": 500, "/5": 1000}[path]}
}

// A request ends by the rules that decided it, whatever SetRules does meanwhile.
func TestARequestEndsByTheRulesThatDecidedIt(t *testing.T) {
	memory, wide, login := new(algorithms.Memory), perHour("wide", 100), failures(5)
	login.Hidden = true
	charging, plain := []ratelimit.Rule{wide, login}, []ratelimit.Rule{perHour("login", 5), wide}
	m := mustNew(t, ratelimit.Config{Limiter: memory, Rules: charging})
	for i, step := range []struct {
		meanwhile []ratelimit.Rule
		remaining string
		used      int64
	}{
		{plain, "99", 0},    // login gives 204 back, and is hidden
		{charging, "4", 1},  // login charges every status, and is shown
		{charging, "99", 1}, // as the first
	} {
		w := serve(m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := errors.Join(m.SetRules(step.meanwhile), ratelimit.Settle(r.Context(), "wide", 0)); err != nil {
				t.Error(err)
			}
			w.WriteHeader(http.StatusNoContent)
		})), "GET /")
		if got := w.Header().Get("X-RateLimit-Remaining"); got != step.remaining {
			t.Errorf("request %d: remaining %q, want %q", i, got, step.remaining)
		}
		if got := used(t, memory, login); got != step.used {
			t.Errorf("request %d: login has counted %d, want %d", i, got, step.used)
		}
	}
}

// What cannot work says so where it is set up, not at the first request.
func TestMistakesInCodePanicWithAMessage(t *testing.T) {
	m := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{perHour("r", 1)}})
	var none *ratelimit.Middleware
	for name, c := range map[string]struct {
		do   func()
		says string
	}{
		"no next handler":        {func() { m.Handler(nil) }, "next handler is nil"},
		"a nil HandlerFunc":      {func() { m.Handler(http.HandlerFunc(nil)) }, "next handler is nil"},
		"a nil Middleware":       {func() { none.Handler(ok) }, "make it with New"},
		"a zero Middleware":      {func() { new(ratelimit.Middleware).Handler(ok) }, "make it with New"},
		"Take of a nil one":      {func() { _, _ = none.Take(nil) }, "make it with New"},
		"Peek of a nil one":      {func() { _, _ = none.Peek(nil) }, "make it with New"},
		"SetRules of a nil one":  {func() { _ = none.SetRules(nil) }, "make it with New"},
		"TopDenied of a nil one": {func() { _ = none.TopDenied(1) }, "make it with New"},
		"a page of a zero one":   {func() { admin.Handler(new(ratelimit.Middleware)) }, "make it with New"},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if said, _ := recover().(string); !strings.HasPrefix(said, "middleware: ") || !strings.Contains(said, c.says) {
					t.Errorf("panic %q, want %q", said, c.says)
				}
			}()
			c.do()
		})
	}
}
