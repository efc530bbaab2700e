package pattern

import (
	"bufio"
	"cmp"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"pgregory.net/rapid"
)

// What other routers serve, and the patterns and requests to ask them about.

// anyRouter is what match promises, asked of ServeMux: does it serve any reading
// of the path, cleaned or not, under the pattern with or without a slash at its
// end?
func anyRouter(pattern string, r *http.Request) bool {
	method, p := splitMethod(pattern)
	dir, last := p[:strings.LastIndex(p, "/")], path.Base(p)
	ends := []string{p, p + "/{$}"}
	if strings.HasSuffix(p, "/") || last == "{$}" || last == "{rest...}" {
		ends[1] = dir
	}
	var urls []*url.URL
	rooted := r.URL.Path
	if rooted == "" || rooted[0] != '/' {
		rooted = "/" + rooted
	}
	for _, s := range []string{rooted, path.Clean(rooted), cmp.Or(strings.TrimSuffix(rooted, "/"), "/")} {
		urls = append(urls, &url.URL{Path: s})
	}
	if raw := r.URL.RawPath; raw != "" {
		for _, s := range []string{raw, path.Clean(raw), strings.TrimSuffix(raw, "/")} {
			for _, s := range withoutLoneSlashes(s) {
				urls = append(urls, &url.URL{Path: unescape(s), RawPath: valid(s)})
			}
		}
	}
	for _, end := range ends {
		for _, u := range urls {
			if end != "" && methodServed(method, r.Method) && served("CONNECT "+end, &http.Request{Method: http.MethodConnect, URL: u}) {
				return true
			}
		}
	}
	return false
}

// everyRouter is what MatchExactly promises: ServeMux serves the request, and
// would whichever way it read the path, and has nothing to clean.
func everyRouter(pattern string, r *http.Request) bool {
	u := r.URL
	urls := []*url.URL{u, {Path: u.Path}}
	if u.RawPath != "" {
		urls = append(urls, &url.URL{Path: u.Path, RawPath: valid(u.RawPath)}, &url.URL{Path: u.RawPath})
	}
	for _, u := range urls {
		isClean := u.Path == clean(u.Path) && (u.RawPath == "" || u.RawPath == clean(u.RawPath))
		if !isClean || !served(pattern, &http.Request{Method: r.Method, URL: u}) {
			return false
		}
	}
	return true
}

// withoutLoneSlashes returns the path with every choice of its %2F segments made
// %2Fx, because ServeMux gives %2F alone to no wildcard, and chi does.
func withoutLoneSlashes(raw string) []string {
	all := []string{""}
	for i, seg := range strings.Split(raw, "/") {
		var next []string
		for _, s := range all {
			if i > 0 {
				s += "/"
			}
			next = append(next, s+seg)
			if strings.EqualFold(seg, "%2F") {
				next = append(next, s+"%2Fx")
			}
		}
		all = next
	}
	return all
}

// valid escapes what EscapedPath does not let a RawPath have, such as ^.
func valid(raw string) string {
	var b strings.Builder
	for i := range len(raw) {
		if c := raw[i]; c == '^' || c == '{' || c == '}' || c >= 0x80 {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func methodServed(pattern, method string) bool {
	return served(pattern+" /", &http.Request{Method: method, URL: &url.URL{Path: "/"}})
}

// hit is a handler to be recognised by; it has no answer but the status.
type hit struct{}

func (hit) ServeHTTP(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }

func muxOf(pattern string) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle(strings.TrimSpace(pattern), hit{})
	return mux
}

// served reports whether ServeMux serves the request, without a redirect.
func served(pattern string, r *http.Request) bool {
	h, _ := muxOf(pattern).Handler(r)
	return h == http.Handler(hit{})
}

// serves reports whether a router serves a copy of the request, or the redirect
// that it answers it with.
func serves(h http.Handler, r *http.Request) bool {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r.Clone(r.Context()))
	// ServeMux redirects to an escaped path escaped once more: another path.
	if to := w.Header().Get("Location"); to != "" && !strings.Contains(r.RequestURI, "%") {
		u, err := url.Parse(to)
		if err != nil {
			return false
		}
		r = r.Clone(r.Context())
		r.URL.Path, r.URL.RawPath = u.Path, u.RawPath
		w = httptest.NewRecorder()
		h.ServeHTTP(w, r)
	}
	return w.Code == http.StatusTeapot
}

// chiOf registers a ServeMux pattern as a user of chi would write it.
func chiOf(pattern string, middlewares ...func(http.Handler) http.Handler) http.Handler {
	method, p := splitMethod(pattern)
	p = strings.TrimSuffix(p, "{$}")
	if p == splitPath(pattern) && strings.HasSuffix(p, "/") {
		p += "*"
	}
	p = strings.Replace(p, "{rest...}", "*", 1)
	r := chi.NewRouter()
	r.Use(middlewares...)
	if method == "" {
		r.Handle(p, hit{})
	} else {
		r.Method(method, p, hit{})
	}
	return r
}

func splitPath(pattern string) string {
	_, p := splitMethod(pattern)
	return p
}

// regexpOf is what somebody might write who matches Path on their own.
func regexpOf(pattern string) *regexp.Regexp {
	p := regexp.QuoteMeta(unescape(splitPath(pattern)))
	p = strings.TrimSuffix(p, `\{\$\}`)
	p = regexp.MustCompile(`\\\{rest\\\.\\\.\\\.\\\}$`).ReplaceAllString(p, ".*")
	p = regexp.MustCompile(`\\\{[xyz]\\\}`).ReplaceAllString(p, "[^/]+")
	if strings.HasSuffix(splitPath(pattern), "/") {
		p += ".*"
	}
	return regexp.MustCompile("(?s)^" + p + "/?$")
}

var patterns = rapid.Custom(func(t *rapid.T) string {
	method := rapid.SampledFrom([]string{"", "GET ", "HEAD ", "POST ", "CONNECT "}).Draw(t, "method")
	segs := rapid.SliceOfN(rapid.SampledFrom([]string{
		"/a", "/b", "/auth", "/login", "/log%69n", "/caf%C3%A9", "/{}", "/{}", "/%2541", "/.a", "/a...}", "/$}",
	}), 0, 3).Draw(t, "segments")
	end := rapid.SampledFrom([]string{"", "/", "/{$}", "/{rest...}"}).Draw(t, "end")
	p := cmp.Or(strings.Join(segs, "")+end, "/")
	for _, name := range []string{"{x}", "{y}", "{z}"} {
		p = strings.Replace(p, "{}", name, 1)
	}
	return method + p
})

// requests are as a server reads them, with paths not too unlike the pattern's.
func requests(pattern string) *rapid.Generator[*http.Request] {
	segments := rapid.SampledFrom([]string{
		"", "", ".", "..", "...", "%2F", "%2f", "%2e", "%2E%2e", "%69", "a", "b", "%61", "auth", "login", "log%69n", "x",
		"a%2Fb", "%2Fa", "b%2F", "x%2F..", "a^", "a%2Fb^", "caf%C3%A9", "café", "%25", "%2541", "%41", ".a", "{x}", "a...%7D", "$}", "*",
	})
	var like []string
	for _, seg := range strings.Split(splitPath(pattern), "/")[1:] {
		switch {
		case !strings.HasPrefix(seg, "{"):
			like = append(like, seg)
		case seg != "{$}":
			like = append(like, "{}")
		default:
			like = append(like, "")
		}
	}
	return rapid.Custom(func(t *rapid.T) *http.Request {
		var segs []string
		for _, seg := range like {
			// Mostly go along, sometimes insert, sometimes replace or drop.
			change := rapid.IntRange(0, 11).Draw(t, "change")
			if change == 0 || change == 1 {
				segs = append(segs, segments.Draw(t, "inserted"))
			}
			if change == 2 || seg == "{}" {
				seg = segments.Draw(t, "segment")
			}
			if change != 3 {
				segs = append(segs, seg)
			}
		}
		for range max(0, rapid.IntRange(-3, 2).Draw(t, "more")) {
			segs = append(segs, segments.Draw(t, "segment"))
		}
		method, _ := splitMethod(pattern)
		if method == "" || rapid.IntRange(0, 3).Draw(t, "other method") == 0 {
			method = rapid.SampledFrom([]string{"GET", "HEAD", "POST", "CONNECT"}).Draw(t, "method")
		}
		r, err := read(method + " /" + strings.Join(segs, "/"))
		if err != nil {
			t.Fatal(err)
		}
		r.Host = "" // ServeMux with CONNECT takes it for part of the pattern
		return r
	})
}

func request(t testing.TB, s string) *http.Request {
	t.Helper()
	if !strings.Contains(s, " ") {
		s = "GET " + s
	}
	if s == "GET " {
		return &http.Request{Method: http.MethodGet, URL: &url.URL{}}
	}
	r, err := read(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// read has net/http read the request as a server does.
func read(line string) (*http.Request, error) {
	return http.ReadRequest(bufio.NewReader(strings.NewReader(line + " HTTP/1.1\r\nHost: host\r\n\r\n")))
}

func mustParse(t testing.TB, s string) *Pattern {
	t.Helper()
	p, err := Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return &p
}
