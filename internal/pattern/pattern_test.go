package pattern

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	"pgregory.net/rapid"
)

// Of paths like the pattern's, [TestPatternIsServeMux] compares with ServeMux. These are to read,
// and others.
func TestPatternMatch(t *testing.T) {
	for _, tt := range []struct {
		pattern          string
		exactly, yes, no []string // "/path" is sent with GET
	}{
		{
			"POST /auth/login", []string{"POST /auth/login"},
			[]string{
				"POST /auth/login/", "POST //auth/login", "POST /auth/x/../login", "POST /auth/log%69n//", "POST /auth%2Flogin",
				"POST /auth/x%2F..%2Flogin", "POST /%2e%2e/auth/login", "POST http://host//auth/login?x=y",
			},
			[]string{"/auth/login", "PUT /auth/login", "POST /", "POST /auth/logi", "POST /auth/loginn", "POST /auth/login/x", "POST /auth/login/..", "POST /auth/log%2569n", "POST /AUTH/login"},
		},
		{"GET /a", []string{"/a", "HEAD /a", "/a?x=/"}, []string{"/a/", "/%61"}, []string{"POST /a", "get /a", "OPTIONS /a", "OPTIONS *"}},
		{"HEAD /a", []string{"HEAD /a"}, nil, []string{"/a"}},
		{"/a", []string{"/a", "HEAD /a", "POST /a", "CONNECT /a", "BREW /a"}, []string{"CONNECT //a"}, []string{"/b"}},
		{"/a/{$}", []string{"/a/", "CONNECT /a/"}, []string{"/a", "/a/%2F", "/a//", "CONNECT /a//"}, []string{"/a/b", "/"}},
		{"/a/", []string{"/a/", "/a/b", "/a/b/c", "/a/b%2Fc"}, []string{"/a", "/a/../b", "/a%2Fb", "/a/..%2Fb"}, []string{"/ab", "/", "/b/a/"}},
		{"/", []string{"/", "/a", "/a/b"}, []string{"//", "GET http://host", "CONNECT host:443", "GET *", "POST *", "HEAD *"}, []string{"OPTIONS *"}},
		{"/{$}", []string{"/"}, []string{"", "//", "/.", "/%2F", "GET http://host", "CONNECT host:443"}, []string{"/a", "OPTIONS *", "GET *"}},
		{"/{rest...}", []string{"/", "/a/b"}, []string{"GET *", "POST *"}, []string{"OPTIONS *"}},
		// chi serves {id} with %2F, .., and before a slash even with nothing.
		{"/u/{id}", []string{"/u/7", "/u/%41^"}, []string{"/u/7/", "/u/7%2F8", "/u/%2F", "/u/..", "/u//", "/u/x/../7", "CONNECT /u//"}, []string{"/u", "/u/", "/u/7/8", "/u/7/%2e%2e"}},
		{"/{tenant}/login", []string{"/x/login"}, []string{"//login", "/../login", "/./login/", "/a%2Fb/%6c%6F%67%69%6e"}, []string{"/login", "/x/y/login"}},
		{"/caf%C3%A9/a%20b", nil, []string{"/caf%c3%a9/a%20b", "/café/%61%20b"}, []string{"/cafe/a%20b", "/caf%25C3%25A9/a%20b"}},
		{"/a...}/$}", []string{"/a...%7D/$%7D"}, nil, []string{"/", "/a"}},
		{"/%7Bid%7D", []string{"/{id}"}, nil, []string{"/x"}},
		// Each router reads another %41 here, and two of them read this one.
		{"/{x}/%2541/", []string{"/1/%2541/x"}, []string{"/1%2F%2541/%41/x"}, []string{"/1/%42/x"}},
	} {
		p := mustParse(t, tt.pattern)
		for what, requests := range map[[2]bool][]string{{true, true}: tt.exactly, {true, false}: tt.yes, {false, false}: tt.no} {
			for _, s := range requests {
				x := TargetOf(request(t, s))
				if got := [2]bool{p.Match(&x), p.MatchExactly(&x)}; got != what {
					t.Errorf("%q matches %q, also exactly: %v, want %v: %+v", tt.pattern, s, got, what, x)
				}
			}
		}
	}
}

// A middleware further out may have changed Path and forgotten RawPath.
func TestPatternStaleRawPath(t *testing.T) {
	r := request(t, "POST /v1/auth/log%69n")
	r.URL.Path = "/auth/login"
	for pattern, want := range map[string]bool{"/auth/login": true, "/v1/auth/login": true, "/v1": false} {
		p, x := mustParse(t, pattern), TargetOf(r)
		if got := p.Match(&x); got != want {
			t.Errorf("%q matches: %t", pattern, got)
		}
		if p.MatchExactly(&x) {
			t.Errorf("%q matches exactly", pattern)
		}
	}
	r.URL.RawPath = "//auth/login"
	p, x := mustParse(t, "/"), TargetOf(r)
	if p.MatchExactly(&x) {
		t.Error("the unclean RawPath was not seen")
	}

	// Under StripPrefix a path may lose its slash, and look like OPTIONS *.
	r = request(t, "GET /files/*")
	r.URL.Path = "*"
	p, x = mustParse(t, "/{name}"), TargetOf(r)
	if !p.Match(&x) || p.MatchExactly(&x) {
		t.Error("a path without a slash must be limited")
	}
}

func TestParsePatternErrors(t *testing.T) {
	const (
		syntax  = `see net/http.ServeMux for the syntax`
		slash   = `routers disagree about an escaped slash; write a wildcard for its segment, as in /files/{name}`
		space   = `there is white space in the path; write one path, with %20 for a space`
		star    = `* is no wildcard; write {name} for one segment, {name...} for the rest of the path, %2A for an asterisk`
		percent = `% must be followed by two hexadecimal digits; write %25 for a percent sign`
		host    = `hosts are not matched; mount the middleware on that host's router instead`
		get     = `; write "GET /x", or leave the method out to match every method`
		hidden  = `there is a character in it that is not visible; remove it`
		regular = `patterns are no regular expressions; write a path such as /api/, which matches all paths that begin so, and {name} for one segment`
		dots    = `the path is not clean once unescaped; leave out the escaped dots`
	)
	for _, tt := range []struct{ pattern, want string }{
		{"", `it is empty; write "/" to match every path`},
		{" /x", `there is white space around it; write "/x"`},
		{"GET /x\n", `there is white space around it; write "GET /x"`},
		{"GET ", `there is white space around it; write "GET"`},

		{"get /x", `methods are case-sensitive; write "GET /x"`},
		{"Post  /x", `methods are case-sensitive; write "POST /x"`},
		{"* /x", `"*" is no method; leave it out to match every method`},
		{"any /x", `"any" is no method; leave it out to match every method`},
		{"ALL /x", `"ALL" is no method; leave it out to match every method`},
		{"GET|POST /x", `"GET|POST" is more than one method; write a pattern for each`},
		{"GET,POST /x", `"GET,POST" is more than one method; write a pattern for each`},
		{"GET, POST /x", `"GET," is more than one method; write a pattern for each`},
		{"GET POST /x", space},
		{"G(ET /x", `"G(ET" is no method of HTTP` + get},
		{"M(N /x", `invalid method "M(N"; ` + syntax},
		{"PSOT /x", `"PSOT" is no method of HTTP; write "POST /x", or leave the method out to match every method`},
		{"GTE  /x", `"GTE" is no method of HTTP` + get},
		{"DELET /x", `"DELET" is no method of HTTP; write "DELETE /x", or leave the method out to match every method`},
		{"OPTIOSN /{y}/z", `"OPTIOSN" is no method of HTTP; write "OPTIONS /{y}/z", or leave the method out to match every method`},
		{"GET\u200b /x", hidden},

		{"POST", `there is no path; write "POST /" to match every path`},
		{"POST/auth/login", `there is no space after the method; write "POST /auth/login"`},
		{"POST auth/login", `the path must start with /; write "POST /auth/login"`},
		{"auth/login", `the path must start with /; write "/auth/login"`},
		{"login", `the path must start with /; write "/login"`},
		{"{x}/y", `the path must start with /; write "/{x}/y"`},
		{"example.com/path", host},
		{"GET localhost:8080/", host},
		{"https://example.com/x", host},

		{"/a b", space},
		{"GET /a /b", space},
		{"/x?y=1", `only the path is matched, no query or fragment; write "/x"`},
		{"GET /{x}#top", `only the path is matched, no query or fragment; write "GET /{x}"`},
		{"/a//b", `the path is not clean; write "/a/b"`},
		{"/a/./b/", `the path is not clean; write "/a/b/"`},
		{"CONNECT /a/../b", `the path is not clean; write "CONNECT /b"`},
		{"//", `the path is not clean; write "/"`},
		{"/a/%2e%2E/b", dots},
		{"/%2e", dots},
		{"/a%2Fb", slash},
		{"/a/%2f", slash},
		{"/100%", percent},
		{"/%zz", percent},

		{"POST /lo\u200bgin", hidden},
		{"/login\u00ad", hidden},
		{"/login\ufe0f", hidden},
		{"/a\x00", hidden},
		{"/login\u00a0a", space},

		{"^/api/.*$", regular},
		{"POST ^/login$", regular},
		{"/files/*", star},
		{"/files/*path", star},
		{"/u/:id", `:id is no wildcard; write {id}, or %3A for a colon`},
		{"/u/{id:[0-9]+}", `bad wildcard name "id:[0-9]+"; ` + syntax},
		{"/u/{id}.json", `bad wildcard segment (must end with '}'); ` + syntax},
		{"/u/x{id}", `bad wildcard segment (must start with '{'); ` + syntax},
		{"/{", `bad wildcard segment (must end with '}'); ` + syntax},
		{"/{}", `empty wildcard; ` + syntax},
		{"/{x}/{x}", `duplicate wildcard name "x"; ` + syntax},
		{"/{x...}/y", `{...} wildcard not at end; ` + syntax},
		{"/{$}/y", `{$} not at end; ` + syntax},
	} {
		want := fmt.Sprintf("pattern %q: %s", tt.pattern, tt.want)
		if _, err := Parse(tt.pattern); err == nil || err.Error() != want {
			t.Errorf("Parse(%q)\n got %v\nwant %s", tt.pattern, err, want)
		}
	}
	for _, s := range []string{
		"/", "GET /", "GET\t /x", "M-SEARCH /x", "PROPFIND /x", "PURGE /x", "QUERY /x", "MOVE /x", "FETCH /x", "/é/登录", "/v1/jobs:run", "/:", "/.well-known/{x}", "/a...", "/%3Aid", "/%2A", "/a%3Fb", "/{_}/{$}",
	} {
		mustParse(t, s)
	}
}

func FuzzPattern(f *testing.F) {
	for _, s := range []string{"POST /a/{x}/b", "/{$}", "/a/", "/{r...}", "get a.b/%2F", "/a...}", "/{a", "/%zz?#", "* /*"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := Parse(s)
		if err != nil {
			if msg := err.Error(); !strings.HasPrefix(msg, "pattern ") || !strings.Contains(msg, "; ") || strings.Contains(msg, "parsing") != strings.Contains(s, "parsing") {
				t.Errorf("unlike the others: %s", msg)
			}
			return
		}
		method, want := splitMethod(s)
		// A path made from the pattern itself; ServeMux panics if it refuses the pattern.
		u, err := url.ParseRequestURI(regexp.MustCompile(`\{[^/]*\}$|\{[^/]*\}`).ReplaceAllStringFunc(want, func(w string) string {
			if w == "{$}" {
				return ""
			}
			return "w"
		}))
		if err != nil {
			return // control characters
		}
		r := &http.Request{Method: method, URL: u}
		x := TargetOf(r)
		if !p.Match(&x) {
			t.Errorf("%q does not match %q", s, u)
		}
		if h, _ := muxOf(s).Handler(r); h != http.Handler(hit{}) {
			t.Errorf("ServeMux does not serve %q with %q", u, s)
		}
	})
}

// TestPatternIsServeMux compares with ServeMux under what match and MatchExactly
// promise, thousands of times: no difference either way.
func TestPatternIsServeMux(t *testing.T) {
	var hits, exact int
	rapid.Check(t, func(t *rapid.T) {
		s := patterns.Draw(t, "pattern")
		p, err := Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		for range 50 {
			r := requests(s).Draw(t, "request")
			x := TargetOf(r)
			got, want := p.Match(&x), anyRouter(s, r)
			if got != want {
				t.Fatalf("match is %t, not %t: %q for %s %q, %+v", got, want, s, r.Method, r.RequestURI, x)
			}
			if !x.odd { // nothing to clean: the pattern itself, with and without the slash
				dir := strings.TrimSuffix(r.URL.Path, "/")
				want := served(s, &http.Request{Method: r.Method, URL: &url.URL{Path: cmp.Or(dir, "/")}}) ||
					served(s, &http.Request{Method: r.Method, URL: &url.URL{Path: dir + "/"}})
				if got != want {
					t.Fatalf("match is %t, not %t: %q for %s %q", got, want, s, r.Method, r.RequestURI)
				}
			}
			gotExactly, wantExactly := p.MatchExactly(&x), everyRouter(s, r)
			if gotExactly != wantExactly {
				t.Fatalf("MatchExactly is %t, not %t: %q for %s %q, %+v", gotExactly, wantExactly, s, r.Method, r.RequestURI, x)
			}
			if gotExactly && !got {
				t.Fatalf("exact but not a match: %q for %s %q", s, r.Method, r.RequestURI)
			}
			if got {
				hits++
			}
			if gotExactly {
				exact++
			}
		}
	})
	t.Logf("%d matches, %d exact", hits, exact)
	if exact < 100 {
		t.Error("the generators hardly ever match: the test proves nothing")
	}
}

// Patterns that one request matches meet, whoever is asked.
func TestPatternsMeet(t *testing.T) {
	hits := 0
	rapid.Check(t, func(t *rapid.T) {
		a, b := patterns.Draw(t, "a pattern"), patterns.Draw(t, "another pattern")
		p, err := Parse(a)
		q, otherErr := Parse(b)
		if err != nil || otherErr != nil {
			t.Fatal(err, otherErr)
		}
		meet := p.Meets(&q)
		if meet != q.Meets(&p) {
			t.Fatalf("%q meets %q: %t, and the other way round %t", a, b, meet, !meet)
		}
		for range 100 {
			x := TargetOf(requests(a).Draw(t, "request"))
			if x.odd || !p.Match(&x) || !q.Match(&x) { // routers disagree about odd ones
				continue
			}
			if hits++; !meet {
				t.Fatalf("%+v matches %q and %q", x, a, b)
			}
		}
	})
	if hits < 20 {
		t.Errorf("%d requests matched both: the test proves nothing", hits)
	}
	for _, c := range []struct {
		a, b string
		meet bool
	}{
		{"/a", "/b", false}, {"/a/", "/b", false}, {"/a", "/a/b", false}, {"/a/{$}", "/a/b", false}, {"POST /a", "GET /a", false}, {"GET /a", "POST /", false}, {"/a/{x}", "/a", false},
		{"/a", "/{x}", true}, {"/", "POST /b", true}, {"GET /a", "HEAD /a", true}, {"/a/", "/a/b/{c}", true}, {"/a", "/a/", true}, {"/a/{x}", "/{y}/b", true}, {"/{rest...}", "DELETE /a/b", true},
	} {
		if got := mustParse(t, c.a).Meets(mustParse(t, c.b)); got != c.meet {
			t.Errorf("%q meets %q: %t", c.a, c.b, got)
		}
	}
}

// TestPatternCoversRouters runs whole routers: whatever one of them serves with
// the pattern's handler is matched.
func TestPatternCoversRouters(t *testing.T) {
	var served [7]int
	rapid.Check(t, func(t *rapid.T) {
		s := patterns.Draw(t, "pattern")
		p, err := Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		plain, clean, strip := chiOf(s), chiOf(s, chimiddleware.CleanPath), chiOf(s, chimiddleware.StripSlashes)
		both, mounted := chiOf(s, chimiddleware.CleanPath, chimiddleware.StripSlashes), chi.NewRouter()
		mounted.Mount("/", plain)
		byPath := regexpOf(s)
		mux := muxOf(s)
		method, _ := splitMethod(s)
		for range 50 {
			r := requests(s).Draw(t, "request")
			x := TargetOf(r)
			matched := p.Match(&x)
			for i, ok := range []bool{
				serves(mux, r),
				serves(plain, r),
				serves(clean, r),
				serves(strip, r),
				serves(both, r),
				serves(mounted, r),
				methodServed(method, r.Method) && (byPath.MatchString(r.URL.Path) || byPath.MatchString(path.Clean(r.URL.Path))),
			} {
				if ok {
					served[i]++
				}
				if ok && !matched {
					t.Fatalf("router %d serves what %q does not match: %s %q, %+v", i, s, r.Method, r.RequestURI, x)
				}
			}
		}
	})
	t.Logf("served by ServeMux, chi, chi with CleanPath, with StripSlashes, with both, mounted, a router by Path: %d", served)
	for i, n := range served {
		if n < 100 {
			t.Errorf("router %d served only %d requests: the test proves nothing", i, n)
		}
	}
}

func TestTargetOfAllocatesNothing(t *testing.T) {
	p := mustParse(t, "POST /auth/login/{x}")
	for _, s := range []string{"POST /auth/login/7", "/", "/a/b/", "/.well-known/x/", "/a%2Fb/c/", "POST /auth/login/a%2Fb"} {
		r := request(t, s)
		if n := testing.AllocsPerRun(100, func() {
			x := TargetOf(r)
			p.Match(&x)
			p.MatchExactly(&x)
		}); n != 0 {
			t.Errorf("%q: %v allocations", s, n)
		}
	}
}

// BenchmarkLongPath compares a path of 1 MB with 10,000 patterns.
func BenchmarkLongPath(b *testing.B) {
	long := strings.Repeat("x", 1<<20)
	for _, c := range []struct{ name, pattern, path string }{
		{"escaped slash", "/api%d/", "/" + long + "%2F"},
		{"unclean", "/api%d/", "//" + long},
		{"unclean, no end", "/api%d/", "/./" + strings.Repeat("/x", 1<<19)},
		{"escaped", "/%%61pi%d/", "/" + strings.Repeat("%78", 1<<18) + "%2F"},
		{"after a literal", "/users/x%d", "/users/" + long + "%2F"},
		{"wildcard", "/users/{id}/x%d", "/users/" + long + "%2F"},
		{"wildcards", "/{id}/{to}/x%d", "/" + long[:1<<19] + "/" + long[:1<<19] + "%2F"},
	} {
		b.Run(c.name, func(b *testing.B) {
			patterns := make([]*Pattern, 10_000)
			for i := range patterns {
				patterns[i] = mustParse(b, fmt.Sprintf(c.pattern, i))
			}
			r := request(b, "GET "+c.path)
			b.ReportAllocs()
			for b.Loop() {
				t := TargetOf(r)
				for _, p := range patterns {
					if p.Match(&t) {
						b.Fatal("matches")
					}
				}
			}
		})
	}
}
