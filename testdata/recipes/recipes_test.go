package recipes

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

type contextKey string

// made returns the middleware that a recipe made.
func made(t *testing.T) func(*ratelimit.Middleware, error) *ratelimit.Middleware {
	return func(m *ratelimit.Middleware, err error) *ratelimit.Middleware {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
}

// limited returns a middleware with rules, which counts in memory.
func limited(t *testing.T, rules ...ratelimit.Rule) *ratelimit.Middleware {
	t.Helper()
	return made(t)(ratelimit.New(ratelimit.Config{Limiter: new(algorithms.Memory), Rules: rules}))
}

// statuses sends a request n times and returns how often each status came.
func statuses(h http.Handler, n int, request func() *http.Request) map[int]int {
	got := make(map[int]int)
	for range n {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, request())
		got[w.Code]++
	}
	return got
}

func wants(t *testing.T, what string, got map[int]int, pairs ...int) {
	t.Helper()
	want := make(map[int]int)
	for i := 0; i < len(pairs); i += 2 {
		want[pairs[i]] = pairs[i+1]
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func responds(status int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
}

func from(addr, method, target string) func() *http.Request {
	return func() *http.Request {
		r := httptest.NewRequest(method, target, nil)
		r.RemoteAddr = addr
		return r
	}
}

func TestLogins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := limited(t, logins(keyfunc.IP)...).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if strings.Contains(string(body), "right") {
				w.WriteHeader(http.StatusOK)
			} else {
				w.WriteHeader(http.StatusUnauthorized)
			}
		}))
		try := func(addr, email, password string) func() *http.Request {
			return func() *http.Request {
				r := httptest.NewRequest("POST", "/auth/login", strings.NewReader(fmt.Sprintf(`{"email":%q,"password":%q}`, email, password)))
				r.RemoteAddr = addr + ":1"
				r.Header.Set("Content-Type", "application/json")
				return r
			}
		}
		wants(t, "good logins", statuses(h, 100, try("192.0.2.1", "a@x", "right")), 200, 100)
		wants(t, "one machine", statuses(h, 15, try("192.0.2.2", "b@x", "wrong")), 401, 10, 429, 5)
		time.Sleep(2 * time.Minute)
		wants(t, "again", statuses(h, 25, try("192.0.2.2", "b2@x", "wrong")), 401, 10, 429, 15) // with the 5 before, a ban
		time.Sleep(59 * time.Minute)
		wants(t, "banned", statuses(h, 1, try("192.0.2.2", "b2@x", "right")), 429, 1)
		time.Sleep(2 * time.Minute)
		wants(t, "after the ban", statuses(h, 1, try("192.0.2.2", "b2@x", "right")), 200, 1)
		wants(t, "one machine, another hour", statuses(h, 10, try("192.0.2.3", "c@x", "wrong")), 401, 10)
		for i := range 10 {
			wants(t, "many machines", statuses(h, 1, try(fmt.Sprint("192.0.2.", 10+i), "c@x", "wrong")), 401, 1)
		}
		wants(t, "one more", statuses(h, 1, try("192.0.2.30", "c@x", "wrong")), 429, 1)
		wants(t, "no account", statuses(h, 1, from("192.0.2.31:1", "POST", "/auth/login")), 400, 1)
	})
}

func TestCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := limited(t, expensive(keyfunc.IP)...).Handler(responds(200))
		wants(t, "reports", statuses(h, 3, from("192.0.2.1:1", "POST", "/reports")), 200, 2, 429, 1) // the database
		time.Sleep(2 * time.Second)
		wants(t, "searches", statuses(h, 20, from("192.0.2.1:1", "GET", "/search")), 200, 12, 429, 8)
		wants(t, "others", statuses(h, 5, from("192.0.2.2:1", "POST", "/reports")), 200, 2, 429, 3)
		wants(t, "cheap", statuses(h, 100, from("192.0.2.3:1", "GET", "/")), 200, 100)
	})
}

func TestGraphQL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule, handler := graphQL(func(*http.Request) ([]byte, int64) { return []byte("{}"), 1500 })
		h := limited(t, rule).Handler(handler)
		wants(t, "an expensive query", statuses(h, 1, from("192.0.2.1:1", "POST", "/graphql")), 200, 1)
		wants(t, "in debt", statuses(h, 3, from("192.0.2.1:1", "POST", "/graphql")), 429, 3)
		time.Sleep(31 * time.Second) // 500 points at 1000 a minute
		wants(t, "paid", statuses(h, 1, from("192.0.2.1:1", "POST", "/graphql")), 200, 1)
	})
}

// What clients could use to get past the rules, or to be taken for others, does not
// reach the upstream.
func TestReverseProxy(t *testing.T) {
	var got *http.Request
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		w.Header().Set("X-RateLimit-Remaining", "1")
	}))
	defer upstream.Close()
	to, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	send := func(h http.Handler, method, target string, header http.Header) *httptest.ResponseRecorder {
		got = nil
		r := httptest.NewRequest(method, "/", nil)
		r.Header = header
		if r.URL, err = url.ParseRequestURI(target); err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	rule := ratelimit.Rule{Name: "r", Key: keyfunc.IP, Limit: algorithms.PerHour(100)}

	// Addresses, users and URLs are not forged.
	for want, proxies := range map[string]keyfunc.Proxies{
		"192.0.2.1":   {}, // of httptest
		"203.0.113.7": {Trusted: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}},
	} {
		forged := http.Header{"Authorization": {"theirs"}, "X-Forwarded-For": {"6.6.6.6", "6.6.6.7, 203.0.113.7"}, "Connection": {"X-Forwarded-For, X-Forwarded-Proto"}}
		for _, name := range append([]string{
			"Forwarded", "X-Forwarded-Host", "X-Forwarded-Prefix", "X-Forwarded-Uri", "X-Forwarded-User", "X_user_id", "X_forwarded_for", "X-Forwarded_for",
		}, proxyFields...) {
			forged.Set(name, "forged")
		}
		w := send(reverseProxy(limited(t, rule), proxies, to), "GET", "/", forged)
		if left := w.Header()["X-Ratelimit-Remaining"]; w.Code != 200 || len(left) != 1 || left[0] != "1" {
			t.Errorf("%d %v", w.Code, w.Header())
		}
		if h := got.Header; !slices.Equal(h["X-Forwarded-For"], []string{want}) || h.Get("X-Forwarded-Proto") != "http" || h.Get("Authorization") != "theirs" || strings.Contains(fmt.Sprint(h), "forged") {
			t.Errorf("want %s: %v", want, h)
		}
	}

	// All requests on a connection that has become HTTP/2 would be one to the rules.
	h := reverseProxy(limited(t, rule), keyfunc.Proxies{}, to)
	for upgrade, passes := range map[string]bool{"websocket": true, "WebSocket": true, "h2c": false, "H2C": false, "h2c/2": false, "websocket, h2c": false, "websocket\nh2c": true} {
		send(h, "GET", "/", http.Header{"Connection": {"Upgrade, HTTP2-Settings"}, "Upgrade": strings.Split(upgrade, "\n"), "Http2-Settings": {"AAMAAABkAARAAAAAAAIAAAAA"}})
		if all := strings.Join(got.Header["Upgrade"], ","); strings.Contains(strings.ToLower(all), "h2c") || (all != "") != passes {
			t.Errorf("%q: %v", upgrade, got.Header)
		}
	}

	// Paths that upstreams read in different ways would pass by a rule for some of them.
	rule.Limit = algorithms.PerHour(6)
	h = reverseProxy(limited(t, rule), keyfunc.Proxies{}, to)
	for _, target := range []string{
		"/a;b", "/a;b/c", "/.;/a", `/a\b`, "/%2e%2e/a", "/.%2E/a", "/a%2Fb", "/a%2f..%2fb", "/a%5cb", "/a%5C..%5Cb", "/a%3Bb", "/%252e/a", "/a%00", "/a%0a", "/a%7f", "/a%3fx", "/a%23x", "/a#x", "/%c0%ae/a",
	} {
		if w := send(h, "GET", target, http.Header{}); w.Code != 400 || got != nil {
			t.Errorf("%s: %d", target, w.Code)
		}
	}
	if w := send(h, "CONNECT", "/a/../b", http.Header{}); w.Code != 400 || got != nil {
		t.Errorf("CONNECT: %d", w.Code)
	}
	for target, want := range map[string]string{
		"/a%20b/caf%C3%A9": "/a b/café", "/a.b/..c/@:,+&=$!*'()~": "/a.b/..c/@:,+&=$!*'()~", "/%6cive": "/live", "/?a=b;c%2f..%5c": "/", "http://evil.example/a": "/a",
	} {
		if w := send(h, "GET", target, http.Header{}); w.Code != 200 || got.URL.Path != want {
			t.Errorf("%s: %d", target, w.Code)
		}
	}
	wants(t, "after 5 that passed", statuses(h, 2, from("192.0.2.1:1", "GET", "/")), 200, 1, 429, 1)
}

// A conn is a socket on which messages wait.
type conn struct {
	waiting int
	closed  string
}

func (c *conn) Read(ctx context.Context) ([]byte, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if c.waiting == 0 {
		return nil, io.EOF
	}
	c.waiting--
	return []byte("hello"), nil
}
func (c *conn) Close(reason string) error { c.closed = reason; return nil }

func TestMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := limited(t, ratelimit.Rule{Name: "messages", Key: keyfunc.IP, Limit: algorithms.PerSecond(20)})
		handled := 0
		serve := func(c *conn) error {
			return messages(limit, httptest.NewRequest("GET", "/ws", nil), c, func([]byte) { handled++ })
		}
		few, many := &conn{waiting: 15}, &conn{waiting: 30}
		if err := serve(few); !errors.Is(err, io.EOF) || handled != 15 || few.closed != "" {
			t.Errorf("%v, %d, %q", err, handled, few.closed)
		}
		if err := serve(many); err != nil || handled != 20 || !strings.HasPrefix(many.closed, "too many messages; retry in ") {
			t.Errorf("%v, %d, %q", err, handled, many.closed)
		}

		limit = limited(t, ratelimit.Rule{Name: "queue", Key: keyfunc.Required(keyfunc.IP, 401), Limit: algorithms.Limit{Rate: 2, Period: time.Second, Burst: 20, Algorithm: algorithms.LeakyBucket}})
		begun, queued := time.Now(), &conn{waiting: 20}
		if err := serve(queued); !errors.Is(err, io.EOF) || handled != 40 || time.Since(begun) != 9500*time.Millisecond {
			t.Errorf("20 messages of a queue of 2/s: %v, %d after %s", err, handled, time.Since(begun))
		}
		limit = limited(t, ratelimit.Rule{Name: "user", Key: keyfunc.Required(keyfunc.Header("User"), 401), Limit: algorithms.PerHour(1)})
		nobody := &conn{waiting: 1}
		if err := serve(nobody); err == nil || nobody.closed != "no key" {
			t.Errorf("%v, %q", err, nobody.closed)
		}
	})
}

func TestEvents(t *testing.T) {
	next := make(chan string)
	limit := limited(t, ratelimit.Rule{Name: "streams", Key: keyfunc.IP, Limit: algorithms.PerHour(1)})
	server := httptest.NewServer(limit.Handler(events(func(context.Context) <-chan string { return next })))
	defer server.Close()
	resp, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	defer close(next)
	lines := bufio.NewScanner(resp.Body)
	for i := range 3 {
		next <- fmt.Sprint(i) // before the one after it exists
		if !lines.Scan() || lines.Text() != fmt.Sprint("data: ", i) || !lines.Scan() {
			t.Fatalf("%q, %v", lines.Text(), lines.Err())
		}
	}
	again, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	if again.Body.Close(); again.StatusCode != http.StatusTooManyRequests {
		t.Error(again.Status)
	}
}

func TestClientsBehindProxies(t *testing.T) {
	cf, err := cloudflare("192.0.2.0/24,2001:db8::/32")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		key         keyfunc.Key
		peer, field string
		value, want string
	}{
		"Cloudflare":         {cf, "192.0.2.1:1", "CF-Connecting-IP", "203.0.113.9", "203.0.113.9"},
		"past Cloudflare":    {cf, "198.51.100.1:1", "CF-Connecting-IP", "203.0.113.9", "198.51.100.1"},
		"Cloudflare, forged": {cf, "192.0.2.1:1", "X-Forwarded-For", "203.0.113.9", "192.0.2.1"},
		"nginx":              {behindNginx(), "10.0.0.7:1", "X-Forwarded-For", "6.6.6.6, 203.0.113.9", "203.0.113.9"},
		"past nginx":         {behindNginx(), "10.0.0.8:1", "X-Forwarded-For", "203.0.113.9", "10.0.0.8"},
		"an ingress":         {behindIngress(), "10.244.3.2:1", "X-Forwarded-For", "6.6.6.6, 203.0.113.9", "203.0.113.9"},
	} {
		r := from(c.peer, "GET", "/")()
		r.Header.Set(c.field, c.value)
		if got, err := c.key.Resolve(r); err != nil || got != c.want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, c.want)
		}
	}
	if _, err := cloudflare("192.0.2.1/24"); err == nil {
		t.Error("a bad network is accepted")
	}
}

func TestSafelist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, rule := new(algorithms.Memory), ratelimit.Rule{Name: "per-ip", Key: keyfunc.IP, Limit: algorithms.PerMinute(10)}
		limit := made(t)(safelist(memory, keyfunc.Proxies{}, []ratelimit.Rule{rule}))
		h := limit.Handler(responds(200))
		wants(t, "the office", statuses(h, 50, from("198.51.100.7:1", "GET", "/")), 200, 50)
		wants(t, "health checks", statuses(h, 50, from("192.0.2.1:1", "GET", "/healthz")), 200, 50)
		wants(t, "others", statuses(h, 50, from("192.0.2.1:1", "GET", "/")), 200, 10, 429, 40)
		wants(t, "one who says so", statuses(h, 50, func() *http.Request {
			r := from("192.0.2.2:1", "GET", "/")()
			r.Header.Set("X-Forwarded-For", "198.51.100.7")
			return r
		}), 200, 10, 429, 40)
	})
}

func TestWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := new(algorithms.Memory)
		jobs := make(chan string, 100)
		for i := range 100 {
			jobs <- fmt.Sprint(i)
		}
		close(jobs)
		begun, sent := time.Now(), 0
		err := worker(t.Context(), memory, jobs, func(_ context.Context, job string) (int64, error) {
			if sent++; strings.HasSuffix(job, "0") {
				return 0, errors.New("refused")
			}
			return 5, nil
		})
		// 100 units at once, then 100 a second; 90 jobs took 5 in the end, 10 nothing.
		if took := time.Since(begun); err != nil || sent != 100 || took < 3*time.Second || took > 4*time.Second {
			t.Errorf("%v, %d jobs in %s", err, sent, took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		more := make(chan string, 1)
		more <- "x"
		for range 30 { // until there is nothing left
			_, _ = memory.Take(t.Context(), algorithms.Check{Rule: "mail", Key: "provider", Cost: 10, Limit: algorithms.Limit{Rate: 100, Period: time.Second, Algorithm: algorithms.TokenBucket}})
		}
		if err := worker(ctx, memory, more, nil); err == nil {
			t.Error("a worker does not end with its context")
		}
	})
}
