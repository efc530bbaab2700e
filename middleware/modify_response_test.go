package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/headers"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

var fields = []string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "Ratelimit", "Ratelimit-Policy", "Retry-After"}

// proxied returns what a reverse proxy behind limits answers a GET.
func proxied(t *testing.T, upstream http.Handler, limits ...*ratelimit.Middleware) (status int, header http.Header) {
	t.Helper()
	back := httptest.NewServer(upstream)
	t.Cleanup(back.Close)
	to, err := url.Parse(back.URL)
	if err != nil {
		t.Fatal(err)
	}
	var h http.Handler = &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(to) },
		ModifyResponse: ratelimit.ModifyResponse,
	}
	for _, limit := range slices.Backward(limits) {
		h = limit.Handler(h)
	}
	front := httptest.NewServer(h)
	t.Cleanup(front.Close)
	resp, err := http.Get(front.URL)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	for _, name := range fields {
		if lines := resp.Header[name]; len(lines) > 1 {
			t.Errorf("%s: %q", name, lines)
		}
	}
	return resp.StatusCode, resp.Header
}

func sends(pairs ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(pairs); i += 2 {
			w.Header().Add(pairs[i], pairs[i+1])
		}
	})
}

// A ReverseProxy adds what the upstream sends to what is there. Clients must read
// one set, the tighter, as of limiters in a chain.
func TestModifyResponseMergesTheUpstreams(t *testing.T) {
	const far = "4000000000" // seconds since 1970
	upstreamOf := func(rate int64) http.Handler { return inMemory(t, perHour("upstream", rate)).Handler(ok) }
	for name, c := range map[string]struct {
		upstream  http.Handler
		remaining string
		items     string // names in RateLimit-Policy, sorted
	}{
		"limited by this package, tighter":   {upstreamOf(5), "4", "ours upstream"},
		"limited by this package, not as so": {upstreamOf(50), "9", "ours upstream"},
		"limited by draft 11 alone":          {sends("RateLimit", `"up";r=3;t=9`, "RateLimit-Policy", `"up";q=7;w=60`), "9", "ours up"},
		"limited by a rule of the same name": {sends("RateLimit", `"ours";r=3;t=9`, "RateLimit-Policy", `"ours";q=7;w=60`), "9", "ours"},
		"X-RateLimit, tighter":               {sends("X-RateLimit-Limit", "7", "X-RateLimit-Remaining", "3", "X-RateLimit-Reset", far), "3", "ours"},
		"malformed":                          {sends("X-RateLimit-Limit", "7", "X-RateLimit-Remaining", "few", "RateLimit", "limit=7", "RateLimit-Policy", "7;w=60"), "9", "ours"},
		"two lines of each":                  {sends("RateLimit", `"a";r=3`, "RateLimit", `"b";r=2`, "RateLimit-Policy", `"a";q=7`, "RateLimit-Policy", `"b";q=7`), "9", "a b ours"},
		"not limited":                        {ok, "9", "ours"},
	} {
		t.Run(name, func(t *testing.T) {
			_, header := proxied(t, c.upstream, inMemory(t, perHour("ours", 10)))
			if got := header.Get("X-RateLimit-Remaining"); got != c.remaining {
				t.Errorf("remaining %s, want %s", got, c.remaining)
			}
			var items []string
			for item := range strings.SplitSeq(header.Get("RateLimit-Policy"), ",") {
				name, _, _ := strings.Cut(item, ";")
				items = append(items, strings.Trim(name, ` "`))
			}
			slices.Sort(items)
			if got := strings.Join(items, " "); got != c.items {
				t.Errorf("RateLimit-Policy has %q, want %q", got, c.items)
			}
		})
	}
}

// Chained limiters in front, one of them with a hidden rule, and one that shows
// nothing: each says what it may.
func TestModifyResponseOfChainedMiddlewares(t *testing.T) {
	hidden := perHour("hidden", 2)
	hidden.Hidden = true
	quiet := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{perHour("quiet", 3)}, Headers: headers.None})
	_, header := proxied(t, inMemory(t, perHour("upstream", 20)).Handler(ok), inMemory(t, perHour("outer", 10)), quiet, inMemory(t, perHour("inner", 15), hidden))
	policy := header.Get("RateLimit-Policy")
	for name, shown := range map[string]bool{"outer": true, "inner": true, "upstream": true, "hidden": false, "quiet": false} {
		if strings.Count(policy, `"`+name+`"`) != map[bool]int{true: 1}[shown] {
			t.Errorf("%s: %s", name, policy)
		}
	}
	if got := header.Get("X-RateLimit-Remaining"); got != "9" {
		t.Errorf("remaining %s, want 9", got)
	}
}

// What the upstream denies reaches the client with the upstream's own Retry-After.
func TestModifyResponseKeepsADenial(t *testing.T) {
	upstream := inMemory(t, perHour("upstream", 1)).Handler(ok)
	serve(upstream, "GET /") // uses it up; the proxy has another address
	denies := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.RemoteAddr = "192.0.2.1:1"
		upstream.ServeHTTP(w, r)
	})
	status, header := proxied(t, denies, inMemory(t, perHour("ours", 10)))
	if status != http.StatusTooManyRequests || header.Get("Retry-After") == "" || header.Get("X-RateLimit-Remaining") != "0" {
		t.Errorf("%d %v", status, header)
	}
}

// A 1xx response makes the proxy forget the headers that are set already.
func TestModifyResponseAfterEarlyHints(t *testing.T) {
	_, header := proxied(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusOK)
	}), inMemory(t, perHour("ours", 10)))
	if got := header.Get("X-RateLimit-Remaining"); got != "9" {
		t.Errorf("remaining %q", got)
	}
}

// Where no rule applied, and in a proxy that is behind no limiter, the upstream's
// headers are left as they are.
func TestModifyResponseWithoutALimiter(t *testing.T) {
	upstream := sends("X-RateLimit-Remaining", "3", "RateLimit", "anything")
	for name, limits := range map[string][]*ratelimit.Middleware{
		"no rule applied": {inMemory(t, perHour("elsewhere", 10, "/elsewhere"))},
		"no limiter":      nil,
	} {
		if _, header := proxied(t, upstream, limits...); header.Get("X-RateLimit-Remaining") != "3" || header.Get("RateLimit") != "anything" {
			t.Errorf("%s: %v", name, header)
		}
	}
	if err := ratelimit.ModifyResponse(&http.Response{Header: http.Header{}}); err != nil {
		t.Error(err)
	}
}
