package pattern

import (
	"cmp"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// Values assigns a number to each request: that of the most specific pattern which
// matches it. nil assigns none.
type Values []value

type value struct {
	Pattern
	n int64
}

// NewValues returns Values for valid patterns without conflicts.
func NewValues(byPattern map[string]int64) Values {
	var values Values
	for text, n := range byPattern {
		p, _ := Parse(text) // it is valid
		values = append(values, value{p, n})
	}
	// Each pattern comes before those that match all its requests and others.
	slices.SortFunc(values, func(a, b value) int {
		return cmp.Or(
			cmp.Compare(len(b.segs), len(a.segs)),
			cmp.Compare(a.wildcards(), b.wildcards()),
			cmp.Compare(a.openness(), b.openness()),
			cmp.Compare(methodOpenness(a.method), methodOpenness(b.method)))
	})
	return values
}

func (p *Pattern) wildcards() (n int) {
	for _, seg := range p.segs {
		if seg == "" {
			n++
		}
	}
	return n
}

// openness is greater for a pattern that may match more paths with the same segments.
func (p *Pattern) openness() int {
	if p.end == endAnything {
		return 1
	}
	return 0
}

func methodOpenness(method string) int {
	switch method {
	case "":
		return 2
	case http.MethodGet: // and HEAD
		return 1
	}
	return 0
}

// Of returns the number of a request, and other if no pattern matches. If routers may
// read the path differently, it is the largest number of all readings, so that no
// spelling of a path has a smaller one.
func (v Values) Of(t *Target, other int64) int64 {
	n := v.ofPath(t.method, &t.path, false, other)
	if t.cleanPath.path != "" {
		n = max(n, v.ofPath(t.method, &t.cleanPath, false, other))
	}
	if t.raw.path != "" {
		n = max(n, v.ofPath(t.method, &t.raw, true, other))
	}
	if t.cleanRaw.path != "" {
		n = max(n, v.ofPath(t.method, &t.cleanRaw, true, other))
	}
	return n
}

// ofPath goes on to less specific patterns until one matches exactly, because some
// router may serve the path by one of them.
func (v Values) ofPath(method string, r *reading, escaped bool, other int64) int64 {
	var most int64
	for i := range v {
		p := &v[i]
		if !escaped && (p.at >= len(r.path) || r.path[p.at] != p.last) || !p.matchMethod(method) || !p.matchPath(r, escaped) {
			continue
		}
		most = max(most, p.n)
		if p.matchPathExactly(r, escaped) {
			return most
		}
	}
	return max(most, other)
}

var conflicting = regexp.MustCompile(`(?s)conflicts with pattern (".*") \(registered at .*?\):\n(.*)`)

// Conflict adds a valid pattern to those in mux. The error says with which of them it
// conflicts: neither is more specific than the other.
func Conflict(mux *http.ServeMux, text string) (err error) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		other, why := "another one", fmt.Sprint(v)
		if m := conflicting.FindStringSubmatch(why); m != nil {
			other, why = m[1], strings.ReplaceAll(m[2], "\n", " ")
		}
		err = fmt.Errorf("pattern %q: conflicts with %s: %s; make one more specific than the other", text, other, strings.TrimSuffix(why, "."))
	}()
	mux.Handle(text, http.NotFoundHandler())
	return nil
}
