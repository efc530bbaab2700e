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

// A ReverseProxy adds what the upstream sends to what is there. Clients must read one set, the
// tighter, as of limiters in a chain.
func TestModifyResponse(t *testing.T) {
	const far = "4000000000" // seconds since 1970
	upstreamOf := func(rate int64) http.Handler { return inMemory(t, perHour("upstream", rate)).Handler(ok) }
	usedUp := upstreamOf(1)
	serve(usedUp, "GET /") // the proxy has another address
	hidden := perHour("hidden", 2)
	hidden.Hidden = true
	quiet := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{perHour("quiet", 3)}, Headers: headers.None})
	elsewhere := inMemory(t, perHour("elsewhere", 10, "/elsewhere"))
	chain := []*ratelimit.Middleware{inMemory(t, perHour("outer", 10)), quiet, inMemory(t, perHour("inner", 15), hidden)}
	for name, c := range map[string]struct {
		upstream  http.Handler
		limits    []*ratelimit.Middleware // in front; nil for ours
		status    int                     // 0 for the upstream's own, which is no denial
		remaining string
		items     string // names in RateLimit-Policy, sorted
	}{
		"limited by this package, tighter":   {upstream: upstreamOf(5), remaining: "4", items: "ours upstream"},
		"limited by this package, not as so": {upstream: upstreamOf(50), remaining: "9", items: "ours upstream"},
		"limited by draft 11 alone":          {upstream: sends("RateLimit", `"up";r=3;t=9`, "RateLimit-Policy", `"up";q=7;w=60`), remaining: "9", items: "ours up"},
		"limited by a rule of the same name": {upstream: sends("RateLimit", `"ours";r=3;t=9`, "RateLimit-Policy", `"ours";q=7;w=60`), remaining: "9", items: "ours"},
		"X-RateLimit, tighter":               {upstream: sends("X-RateLimit-Limit", "7", "X-RateLimit-Remaining", "3", "X-RateLimit-Reset", far), remaining: "3", items: "ours"},
		"malformed":                          {upstream: sends("X-RateLimit-Limit", "7", "X-RateLimit-Remaining", "few", "RateLimit", "limit=7", "RateLimit-Policy", "7;w=60"), remaining: "9", items: "ours"},
		"two lines of each":                  {upstream: sends("RateLimit", `"a";r=3`, "RateLimit", `"b";r=2`, "RateLimit-Policy", `"a";q=7`, "RateLimit-Policy", `"b";q=7`), remaining: "9", items: "a b ours"},
		"not limited":                        {upstream: ok, remaining: "9", items: "ours"},
		"each of a chain says what it may":   {upstream: upstreamOf(20), limits: chain, remaining: "9", items: "inner outer upstream"},
		"a denial keeps its Retry-After": {upstream: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.RemoteAddr = "192.0.2.1:1"
			usedUp.ServeHTTP(w, r)
		}), status: http.StatusTooManyRequests, remaining: "0", items: "ours upstream"},
		"a 1xx makes the proxy forget headers": {upstream: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", "</style.css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusOK)
		}), remaining: "9", items: "ours"},
		"no rule applied": {upstream: sends("X-RateLimit-Remaining", "3", "RateLimit", "anything", "RateLimit-Policy", "anything"), limits: []*ratelimit.Middleware{elsewhere}, remaining: "3", items: "anything"},
		"no limiter":      {upstream: sends("X-RateLimit-Remaining", "3", "RateLimit", "anything", "RateLimit-Policy", "anything"), limits: []*ratelimit.Middleware{}, remaining: "3", items: "anything"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.limits == nil {
				c.limits = []*ratelimit.Middleware{inMemory(t, perHour("ours", 10))}
			}
			status, header := proxied(t, c.upstream, c.limits...)
			if got := header.Get("X-RateLimit-Remaining"); got != c.remaining || c.status > 0 && status != c.status || (status == http.StatusTooManyRequests) != (header.Get("Retry-After") != "") {
				t.Errorf("status %d, remaining %s, want %s; %v", status, got, c.remaining, header)
			}
			var items []string
			for item := range strings.SplitSeq(header.Get("RateLimit-Policy"), ",") {
				name, _, _ := strings.Cut(item, ";")
				items = append(items, strings.Trim(name, ` "`))
			}
			slices.Sort(items)
			if got := strings.Join(items, " "); got != c.items || got == "anything" && header.Get("RateLimit") != got {
				t.Errorf("RateLimit-Policy has %q, want %q; %v", got, c.items, header)
			}
		})
	}
	if err := ratelimit.ModifyResponse(&http.Response{Header: http.Header{}}); err != nil {
		t.Error(err)
	}
}
