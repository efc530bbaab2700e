// Package pattern compiles ServeMux patterns that are compared with requests, rather
// than used to route them. It knows nothing of rate limits.
package pattern

import (
	"cmp"
	"net/http"
	"net/url"
	"path"
	"strings"
)

// A Pattern is a net/http ServeMux pattern without a host. Make it with [Parse].
//
// Routers read some paths in different ways. For those, Match errs towards true, for
// requests that must not escape, and MatchExactly errs towards false, for requests that
// may.
type Pattern struct {
	method string   // "" matches every method
	segs   []string // literals, unescaped; "" is a wildcard
	end    ending
	// last is the last byte before the first wildcard, and at its index: 'n' and
	// 10 in "/auth/login". It tells nearly every miss, even where all paths start
	// with the same segments.
	last byte
	at   int
}

// An ending is what a pattern wants after its segments.
type ending byte

const (
	endNothing  ending = iota // "/a"
	endSlash                  // "/a/{$}"
	endAnything               // "/a/", "/a/{rest...}"
)

// A Target holds the method and the path of a request, prepared for many patterns.
//
// ServeMux splits the escaped path and then unescapes each segment. chi uses RawPath if
// it is set. Others use Path. Some clean the path first. A Target holds every reading that
// differs from Path.
type Target struct {
	method string
	// path is URL.Path, with a leading slash; "" for OPTIONS *, which has no path.
	// cleanPath is "" if the path was sent clean.
	path, cleanPath reading
	// raw is URL.RawPath, if set. URL.EscapedPath needs no field: it is RawPath,
	// or it is Path escaped, which matches as Path does.
	raw, cleanRaw reading
	odd           bool // has more than path
}

// A reading is a path, and where its first segments end, as far as a wildcard has needed
// to know. So a long segment is searched once, not once for each pattern.
type reading struct {
	path string
	ends [8]int32 // 0 where it is not known
}

// TargetOf returns the Target of a request. It allocates only for unclean paths. A
// request without a URL has the path "/".
func TargetOf(r *http.Request) (t Target) {
	if r.URL == nil {
		return Target{method: r.Method, path: reading{path: "/"}}
	}
	t.method, t.path.path = r.Method, r.URL.Path
	if r.URL.RawPath == "" && tidy(r.URL.Path) {
		return t
	}
	if r.URL.Path == "*" && t.method == http.MethodOptions && cmp.Or(r.RequestURI, "*") == "*" {
		return Target{}
	}
	t.path.path, t.cleanPath.path = readings(r.URL.Path)
	if r.URL.RawPath != "" {
		t.raw.path, t.cleanRaw.path = readings(r.URL.RawPath)
	}
	t.odd = t.cleanPath.path != "" || t.raw.path != ""
	return t
}

// tidy reports whether a path is surely clean, at a third of path.Clean's cost.
func tidy(p string) bool {
	for i := 1; i < len(p); i++ {
		if p[i-1] == '/' && (p[i] == '/' || p[i] == '.') {
			return false
		}
	}
	return p != "" && p[0] == '/'
}

// readings returns a path with a leading slash, and cleaned if it was sent
// otherwise.
func readings(sent string) (rooted, cleaned string) {
	rooted = sent
	if !strings.HasPrefix(sent, "/") {
		rooted = "/" + sent
	}
	if cleaned = clean(rooted); cleaned == sent {
		cleaned = ""
	}
	return rooted, cleaned
}

// Match reports whether a router might serve the request by the pattern, with or
// without a trailing slash. It errs towards true.
func (p *Pattern) Match(t *Target) bool {
	// Small enough to be inlined.
	return (t.odd || p.at < len(t.path.path) && t.path.path[p.at] == p.last) && p.matchReadings(t)
}

func (p *Pattern) matchReadings(t *Target) bool {
	return p.matchMethod(t.method) &&
		(p.matchPath(&t.path, false) ||
			t.cleanPath.path != "" && p.matchPath(&t.cleanPath, false) ||
			t.raw.path != "" && p.matchPath(&t.raw, true) ||
			t.cleanRaw.path != "" && p.matchPath(&t.cleanRaw, true))
}

func (p *Pattern) matchPath(r *reading, escaped bool) bool {
	rest, ok := p.walk(r, escaped)
	rest = strings.TrimSuffix(rest, "/")
	// What is left may still be the slash of "/a/{$}", sent by its name or not.
	return ok && (p.end == endAnything || rest == "" || rest == "/" || escaped && strings.EqualFold(rest, "/%2F"))
}

// MatchExactly reports whether every router would serve the request by the pattern,
// with the path as it was sent. It errs towards false.
func (p *Pattern) MatchExactly(t *Target) bool {
	return t.cleanPath.path == "" && t.cleanRaw.path == "" && p.matchMethod(t.method) &&
		p.matchPathExactly(&t.path, false) &&
		// chi does not unescape RawPath: to it, /he%61lth may be some /{page}.
		(t.raw.path == "" || p.matchPathExactly(&t.raw, true) && p.matchPathExactly(&t.raw, false))
}

func (p *Pattern) matchPathExactly(r *reading, escaped bool) bool {
	rest, ok := p.walk(r, escaped)
	return ok && (p.end == endNothing && rest == "" ||
		p.end == endSlash && rest == "/" ||
		p.end == endAnything && rest != "")
}

func (p *Pattern) matchMethod(method string) bool {
	return p.method == "" || p.method == method || p.method == http.MethodGet && method == http.MethodHead
}

// walk matches the pattern's segments and returns the rest of the path.
//
// A wildcard also matches an empty segment, which ServeMux allows only for CONNECT,
// and %2F, which only chi allows. It does not match the end of a path after a slash.
func (p *Pattern) walk(r *reading, escaped bool) (rest string, ok bool) {
	rest = r.path
	for i, lit := range p.segs {
		if len(rest) <= 1 {
			return "", false
		}
		if lit == "" {
			rest = r.afterSegment(i, rest)
			continue
		}
		// No more than can be the literal, lest a long path is searched for each pattern.
		longest := len(lit)
		if escaped {
			longest *= 3
		}
		seg, _ := cutSegment(rest[:min(len(rest), longest+2)])
		rest = rest[1+len(seg):]
		if escaped && len(lit) <= len(seg) && len(seg) <= longest {
			seg = unescape(seg)
		}
		if lit != seg {
			return "", false
		}
	}
	return rest, true
}

// afterSegment returns what follows segment i, with which rest begins.
func (r *reading) afterSegment(i int, rest string) string {
	if i < len(r.ends) && r.ends[i] > 0 {
		return r.path[r.ends[i]:]
	}
	_, rest = cutSegment(rest)
	if i < len(r.ends) {
		r.ends[i] = int32(len(r.path) - len(rest))
	}
	return rest
}

// Meets reports whether a request may match both patterns.
func (p *Pattern) Meets(q *Pattern) bool {
	if len(p.segs) > len(q.segs) {
		p, q = q, p
	}
	for i, seg := range p.segs {
		if seg != q.segs[i] && seg != "" && q.segs[i] != "" {
			return false
		}
	}
	return (p.end == endAnything || len(p.segs) == len(q.segs)) &&
		(p.method == "" || q.method == "" || p.matchMethod(q.method) || q.matchMethod(p.method))
}

// HasBodies reports whether requests that the pattern matches often have a body.
func (p *Pattern) HasBodies() bool {
	switch p.method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodConnect:
		return false
	}
	return true
}

// unescape leaves what is not validly escaped as it is, like ServeMux.
func unescape(seg string) string {
	if u, err := url.PathUnescape(seg); err == nil {
		return u
	}
	return seg
}

// splitMethod cuts a pattern where ServeMux does.
func splitMethod(s string) (method, rest string) {
	if i := strings.IndexAny(s, " \t"); i >= 0 {
		return s[:i], strings.TrimLeft(s[i:], " \t")
	}
	return "", s
}

// cutSegment cuts the first segment off a path, which must start with a slash.
func cutSegment(path string) (seg, rest string) {
	if i := strings.IndexByte(path[1:], '/'); i >= 0 {
		return path[1 : i+1], path[i+1:]
	}
	return path[1:], ""
}

// clean is path.Clean except that it keeps a trailing slash.
func clean(p string) string {
	c := path.Clean(p)
	if c == "/" || !strings.HasSuffix(p, "/") {
		return c
	} else if len(p) == len(c)+1 {
		return p // clean already
	}
	return c + "/"
}
