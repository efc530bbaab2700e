package shims_test

import (
	"cmp"
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-chi/httprate"

	"github.com/seed75154129/ratelimit/keyfunc"

	"recipes/shims"
)

type tenant struct{}

func byTenant(r *http.Request) (string, error) {
	name, _ := r.Context().Value(tenant{}).(string)
	return name, nil
}

// An ask is a request, and what httprate answers.
type ask struct {
	after  time.Duration // since the request before
	addr   string        // RemoteAddr; "" is 192.0.2.1:1
	path   string
	tenant string
	cost   string // the increment; "" is none
	limit  int    // its own; 0 is none
	code   int
	left   string // X-RateLimit-Remaining; "" is not looked at
	ours   int    // the code here, if it differs
}

func times(n int, a ask) []ask { return slices.Repeat([]ask{a}, n) }

var httprateRows = []struct {
	name    string
	limit   int
	window  time.Duration
	theirs  httprate.KeyFunc
	ours    keyfunc.Key
	asks    []ask
	differs string // why
}{
	{name: "below the limit", limit: 3, window: 4 * time.Second, asks: times(3, ask{code: 200})},
	{name: "above the limit", limit: 3, window: 2 * time.Second, asks: append(times(3, ask{code: 200}), ask{code: 429})},
	{name: "increment 0", limit: 3, asks: times(4, ask{cost: "0", code: 200})},
	{name: "increment 1", limit: 3, asks: append(times(3, ask{cost: "1", code: 200}), ask{cost: "1", code: 429})},
	{name: "increment 2", limit: 3, asks: append(times(1, ask{cost: "2", code: 200}), times(3, ask{cost: "2", code: 429})...)},
	{name: "increment 3", limit: 3, asks: append(times(1, ask{cost: "3", code: 200}), times(3, ask{cost: "3", code: 429})...)},
	{name: "increment 4", limit: 3, asks: times(4, ask{cost: "4", code: 429})},
	{name: "headers", limit: 5, asks: []ask{{code: 200, left: "4"}, {code: 200, left: "3"}, {code: 200, left: "2"}, {code: 200, left: "1"}, {code: 200, left: "0"}, {code: 429, left: "0"}}},
	{name: "headers of increments", limit: 5, asks: []ask{
		{cost: "2", code: 200, left: "3"}, {cost: "2", code: 200, left: "1"}, {cost: "1", code: 200, left: "0"},
		{cost: "2", code: 429, left: "0"}, {cost: "10", code: 429, left: "0"}, {cost: "1", code: 429, left: "0"},
	}},
	{name: "headers of increment 0", limit: 5, asks: times(6, ask{cost: "0", code: 200, left: "5"})},
	{name: "headers of an increment that never fits", limit: 5, asks: times(6, ask{cost: "10", code: 429, left: "5"})},
	{name: "increment 0 at the limit", limit: 1, asks: []ask{{code: 200, left: "0"}, {code: 429, left: "0"}, {cost: "0", code: 200, left: "0"}}},
	{name: "addresses", limit: 3, theirs: httprate.KeyByIP, ours: keyfunc.IP, asks: []ask{{addr: "1.1.1.1:100", code: 200}, {addr: "2.2.2.2:200", code: 200}}},
	{name: "an address", limit: 1, theirs: httprate.KeyByIP, ours: keyfunc.IP, asks: []ask{{addr: "1.1.1.1:100", code: 200}, {addr: "1.1.1.1:100", code: 429}, {addr: "2.2.2.2:200", code: 200}}},
	{name: "a network of IPv6", limit: 1, theirs: httprate.KeyByIP, ours: keyfunc.IP, asks: []ask{
		{addr: "[2001:DB8::21f:5bff:febf:ce22]:1111", code: 200}, {addr: "[2001:DB8::21f:5bff:febf:1]:2222", code: 429}, {addr: "[2002:DB8::21f:5bff:febf:ce22]:1111", code: 200},
	}},
	{name: "IPv4 in IPv6", limit: 1, theirs: httprate.KeyByIP, ours: keyfunc.IP, asks: []ask{
		{addr: "192.0.2.1:1234", code: 200}, {addr: "[::ffff:c000:201]:1234", code: 429}, {addr: "[::ffff:192.0.2.1]:1234", code: 429},
		{addr: "[::ffff:192.0.2.2]:1234", code: 200}, {addr: "[0000:0000:0000:0000:0000:FFFF:C000:0202]:1234", code: 429}, {addr: "192.0.2.2:1234", code: 429},
	}},
	{name: "limits by context", limit: 3, asks: []ask{
		{code: 200}, {limit: 1, code: 429}, {code: 200}, {code: 200}, {code: 429}, {limit: 5, code: 200}, {limit: 5, code: 200}, {limit: 5, code: 429},
	}},
	{name: "a key of the context", limit: 2, theirs: byTenant, ours: keyfunc.Func(byTenant), asks: append(times(2, ask{tenant: "acme", code: 200}), ask{tenant: "acme", code: 429}, ask{tenant: "globex", code: 200})},
	{name: "no key", limit: 2, theirs: byTenant, ours: keyfunc.Func(byTenant), asks: []ask{{addr: "1.1.1.1:1", code: 200}, {addr: "2.2.2.2:2", code: 200}, {addr: "3.3.3.3:3", code: 429}}},
	{name: "two keys", limit: 1, theirs: httprate.JoinKeys(httprate.KeyByIP, httprate.KeyByEndpoint), ours: keyfunc.Join(keyfunc.IP, keyfunc.Func(httprate.KeyByEndpoint)),
		asks: []ask{{path: "/a", code: 200}, {path: "/b", code: 200}, {path: "/a", code: 429}}},
	{name: "two keys, one of them empty", limit: 2, theirs: httprate.JoinKeys(httprate.KeyByIP, byTenant), ours: keyfunc.Join(keyfunc.IP, keyfunc.Func(byTenant)),
		asks: append(times(2, ask{code: 200}), ask{code: 429})},
	{name: "two clients with an empty key", limit: 2, theirs: httprate.JoinKeys(httprate.KeyByIP, byTenant), ours: keyfunc.Join(keyfunc.IP, keyfunc.Func(byTenant)),
		asks: append(times(2, ask{code: 200}), ask{addr: "192.0.2.2:1", code: 200, ours: 429}), differs: "shared"},
	{name: "the next window", limit: 4, window: 4 * time.Second, asks: append(times(4, ask{code: 200}), ask{after: 4 * time.Second, code: 429}, ask{after: time.Second, code: 200}, ask{code: 429})},
	{name: "a part of a request", limit: 4, window: 4 * time.Second, asks: append(times(4, ask{code: 200}), ask{after: 4600 * time.Millisecond, code: 200, ours: 429}), differs: "unrounded"},
}

func (a ask) request(t *testing.T, limit, increment func(context.Context, int) context.Context) *http.Request {
	ctx := context.WithValue(t.Context(), tenant{}, a.tenant)
	if a.limit > 0 {
		ctx = limit(ctx, a.limit)
	}
	if n, err := strconv.Atoi(a.cost); err == nil {
		ctx = increment(ctx, n)
	}
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, cmp.Or(a.path, "/"), nil)
	r.RemoteAddr = cmp.Or(a.addr, "192.0.2.1:1")
	return r
}

var ok = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

// httprate's own tests say what httprate answers. The shim answers so too, but where a row
// says why not.
func TestHTTPRate(t *testing.T) {
	for _, row := range httprateRows {
		window := cmp.Or(row.window, time.Minute)
		if row.theirs == nil {
			row.theirs, row.ours = httprate.Key("*"), keyfunc.Everyone
		}
		synctest.Test(t, func(t *testing.T) {
			theirs, ours := httprate.LimitBy(row.limit, window, row.theirs)(ok), shims.LimitBy(row.limit, window, row.ours)(ok)
			differs := false
			for i, a := range row.asks {
				time.Sleep(a.after)
				reset := strconv.FormatInt(time.Now().Unix(), 10)
				for who, w := range map[string]*httptest.ResponseRecorder{
					"httprate": answer(theirs, a.request(t, httprate.WithRequestLimit, httprate.WithIncrement)),
					"here":     answer(ours, a.request(t, shims.WithRequestLimit, shims.WithIncrement)),
				} {
					want := a.code
					if who == "here" && a.ours != 0 {
						want, differs = a.ours, true
					}
					f := w.Header()
					if w.Code != want || a.left != "" && f.Get("X-RateLimit-Remaining") != a.left {
						t.Errorf("%s, %s, request %d: %d, %v", row.name, who, i, w.Code, f)
					}
					if limit := strconv.Itoa(cmp.Or(a.limit, row.limit)); f.Get("X-RateLimit-Limit") != limit || f.Get("X-RateLimit-Reset") < reset {
						t.Errorf("%s, %s, request %d: %v", row.name, who, i, f)
					}
				}
			}
			if differs != (row.differs != "") {
				t.Errorf("%s: differs is %q", row.name, row.differs)
			}
		})
	}
}

func answer(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func slowDown(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "slow down", http.StatusTooManyRequests)
}

// Denials have the program's own response.
func TestHTTPRateLimitHandler(t *testing.T) {
	for who, h := range map[string]http.Handler{
		"httprate": httprate.LimitBy(1, time.Hour, httprate.Key("*"), httprate.WithLimitHandler(slowDown))(ok),
		"here":     shims.LimitBy(1, time.Hour, keyfunc.Everyone, shims.WithLimitHandler(slowDown))(ok),
	} {
		for i, want := range []struct {
			code int
			body string
		}{{200, ""}, {429, "slow down\n"}} {
			if w := answer(h, ask{}.request(t, nil, nil)); w.Code != want.code || w.Body.String() != want.body {
				t.Errorf("%s, request %d: %d %q", who, i, w.Code, w.Body)
			}
		}
	}
}

// A field has the name that the program chose, and none without a name.
func TestHTTPRateResponseHeaders(t *testing.T) {
	renamed := httprate.ResponseHeaders{Limit: "RateLimit-Limit", Remaining: "RateLimit-Remaining", Reset: "RateLimit-Reset", RetryAfter: "RateLimit-Retry", Increment: "RateLimit-Increment"}
	for _, row := range []struct {
		name  string
		names httprate.ResponseHeaders
		cost  string
		want  string // the fields of a denial
	}{
		{"none", httprate.ResponseHeaders{}, "2", ""},
		{"others", renamed, "2", "Increment Limit Remaining Reset Retry"},
		{"others, increment 1", renamed, "1", "Limit Remaining Reset Retry"},
	} {
		for who, h := range map[string]http.Handler{
			"httprate": httprate.LimitBy(2, time.Hour, httprate.Key("*"), httprate.WithLimitHandler(slowDown), httprate.WithResponseHeaders(row.names))(ok),
			"here":     shims.LimitBy(2, time.Hour, keyfunc.Everyone, shims.WithLimitHandler(slowDown), shims.WithResponseHeaders(row.names))(ok),
		} {
			answer(h, ask{cost: "2"}.request(t, nil, either))
			w := answer(h, ask{cost: row.cost}.request(t, nil, either))
			var got []string
			for name := range w.Header() {
				if short, found := strings.CutPrefix(name, "Ratelimit-"); found {
					got = append(got, short)
				} else if name != "Content-Type" && name != "X-Content-Type-Options" && name != "Cache-Control" {
					t.Errorf("%s, %s: field %s", row.name, who, name)
				}
			}
			slices.Sort(got)
			if w.Code != 429 || strings.Join(got, " ") != row.want {
				t.Errorf("%s, %s: %d, %q", row.name, who, w.Code, got)
			}
		}
	}
}

// either sets the increment for both limiters.
func either(ctx context.Context, n int) context.Context {
	return shims.WithIncrement(httprate.WithIncrement(ctx, n), n)
}

// httprate's Retry-After is the window, which may be too short or too long. Here it is when
// a request has room, and no earlier.
func TestHTTPRateRetryAfter(t *testing.T) {
	for _, row := range []struct {
		who   string
		after time.Duration // of the denial
		wait  string
		codes string // a second before the wait has passed, and then
	}{
		{"httprate", 0, "60", "429 429"},
		{"here", 0, "72", "429 200"},
		{"httprate", 50 * time.Second, "60", "200 200"},
		{"here", 50 * time.Second, "22", "429 200"},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := httprate.LimitBy(5, time.Minute, httprate.Key("*"))(ok)
			if row.who == "here" {
				h = shims.LimitBy(5, time.Minute, keyfunc.Everyone)(ok)
			}
			code := func() string { return strconv.Itoa(answer(h, ask{}.request(t, nil, nil)).Code) }
			for range 5 {
				code()
			}
			time.Sleep(row.after)
			wait := answer(h, ask{}.request(t, nil, nil)).Header().Get("Retry-After")
			n, _ := strconv.Atoi(wait)
			time.Sleep(time.Duration(n-1) * time.Second)
			before := code()
			time.Sleep(time.Second)
			if codes := before + " " + code(); wait != row.wait || codes != row.codes {
				t.Errorf("%s, after %s: Retry-After %s, then %s", row.who, row.after, wait, codes)
			}
		})
	}
}

// A login is counted by a field of its body: 400 without one, and 429 after five.
func TestHTTPRatePayload(t *testing.T) {
	key := keyfunc.Required(keyfunc.BodyJSON("username", 1<<10), http.StatusBadRequest)
	rater := httprate.NewRateLimiter(5, time.Minute)
	for who, h := range map[string]http.Handler{
		"httprate": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			name, err := key.Resolve(r)
			if err != nil {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			rater.RespondOnLimit(w, r, name)
		}),
		"here": shims.LimitBy(5, time.Minute, key)(ok),
	} {
		for i, want := range []int{200, 200, 200, 200, 200, 429, 429, 400, 200} {
			body := `{"username":"alice","password":"***"}`
			switch i {
			case 7:
				body = `{"password":"***"}`
			case 8:
				body = `{"username":"bob","password":"***"}`
			}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			if w := answer(h, r); w.Code != want || want == 429 && w.Body.String() != "Too Many Requests\n" {
				t.Errorf("%s, request %d: %d %s", who, i, w.Code, w.Body)
			}
		}
	}
}
