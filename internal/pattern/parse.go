package pattern

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/seed75154129/ratelimit/internal/near"
)

// Parse compiles a ServeMux pattern. It rejects what ServeMux rejects. It also rejects
// patterns that ServeMux accepts but that are mistakes, because a pattern that matches
// no request would go unnoticed. The error says what to write instead.
func Parse(s string) (Pattern, error) {
	what, fix := mistake(s)
	if what == "" {
		what, fix = rejection(s), "see net/http.ServeMux for the syntax"
	}
	if what != "" {
		return Pattern{}, fmt.Errorf("pattern %q: %s; %s", s, what, fix)
	}

	method, rest := splitMethod(s)
	head, _, _ := strings.Cut(rest, "{")
	head = cmp.Or(unescape(strings.TrimSuffix(head, "/")), "/")
	p := Pattern{method: method, at: len(head) - 1, last: head[len(head)-1]}
	for rest != "" {
		var seg string
		seg, rest = cutSegment(rest)
		switch name, wild := strings.CutPrefix(seg, "{"); {
		case seg == "", wild && strings.HasSuffix(name, "...}"):
			p.end = endAnything
		case seg == "{$}":
			p.end = endSlash
		case wild:
			p.segs = append(p.segs, "")
		default:
			p.segs = append(p.segs, unescape(seg))
		}
	}
	return p, nil
}

// rejection returns why ServeMux rejects a pattern, or "".
func rejection(s string) (why string) {
	defer func() {
		if v := recover(); v != nil {
			why = fmt.Sprint(v)
			// The innermost error goes without `parsing "/{": at offset 1: `.
			for err, _ := v.(error); err != nil; err = errors.Unwrap(err) {
				why = err.Error()
			}
		}
	}()
	http.NewServeMux().Handle(s, http.NotFoundHandler())
	return ""
}

// mistake returns what is wrong with a pattern, even if ServeMux accepts it, and how
// to fix it. Both are "" for a good pattern.
func mistake(s string) (what, fix string) {
	method, p := splitMethod(s)
	upper, before, meant := strings.ToUpper(method), strings.TrimSuffix(s, p), near.Word(method, methods)
	host, rest, slash := strings.Cut(p, "/")
	switch {
	case s == "":
		return "it is empty", `write "/" to match every path`
	case s != strings.TrimSpace(s):
		return "there is white space around it", fmt.Sprintf("write %q", strings.TrimSpace(s))
	case strings.ContainsAny(method, ",|"):
		return fmt.Sprintf("%q is more than one method", method), "write a pattern for each"
	case strings.Contains(method, "/") || strings.ContainsFunc(p, unicode.IsSpace):
		return "there is white space in the path", "write one path, with %20 for a space"
	case upper == "ANY" || upper == "ALL" || upper == "*":
		return fmt.Sprintf("%q is no method", method), "leave it out to match every method"
	case upper != method: // "get" never comes
		return "methods are case-sensitive", fmt.Sprintf("write %q", upper+" "+p)
	case meant != "" && meant != method:
		return fmt.Sprintf("%q is no method of HTTP", method), fmt.Sprintf("write %q, or leave the method out to match every method", meant+" "+p)
	case strings.ContainsFunc(method+p, Invisible):
		return "there is a character in it that is not visible", "remove it"
	case strings.HasPrefix(p, "^"):
		return "patterns are no regular expressions", "write a path such as /api/, which matches all paths that begin so, and {name} for one segment"
	case slices.Contains(methods, p):
		return "there is no path", fmt.Sprintf("write %q to match every path", p+" /")
	case slices.Contains(methods, host):
		return "there is no space after the method", fmt.Sprintf("write %q", host+" /"+rest)
	case strings.ContainsAny(host, ".:"):
		return "hosts are not matched", "mount the middleware on that host's router instead"
	case !slash || host != "":
		return "the path must start with /", fmt.Sprintf("write %q", before+"/"+p)
	case strings.ContainsAny(p, "?#"):
		return "only the path is matched, no query or fragment",
			fmt.Sprintf("write %q", before+p[:strings.IndexAny(p, "?#")])
	case p != clean(p):
		return "the path is not clean", fmt.Sprintf("write %q", before+clean(p))
	case strings.Contains(strings.ToUpper(p), "%2F"):
		// It is a slash to routers that take URL.Path and, alone, {$} to ServeMux.
		return "routers disagree about an escaped slash", "write a wildcard for its segment, as in /files/{name}"
	}
	if u, err := url.PathUnescape(p); err != nil {
		return "% must be followed by two hexadecimal digits", "write %25 for a percent sign"
	} else if u != clean(u) {
		return "the path is not clean once unescaped", "leave out the escaped dots"
	}
	for seg := range strings.SplitSeq(p, "/") {
		switch {
		case strings.Contains(seg, "*"):
			return "* is no wildcard", "write {name} for one segment, {name...} for the rest of the path, %2A for an asterisk"
		case len(seg) > 1 && seg[0] == ':':
			return seg + " is no wildcard", fmt.Sprintf("write {%s}, or %%3A for a colon", seg[1:])
		}
	}
	return "", ""
}

// Invisible reports whether a character is neither visible nor a plain space.
func Invisible(r rune) bool {
	return !unicode.IsPrint(r) || unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE"}
