package keyfunc

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/seed75154129/ratelimit/internal/hint"
)

var (
	errNoRoute   = fmt.Errorf("%w: %w", ErrNoKey, hint.ErrNoRoute)
	errNoPattern = fmt.Errorf("%w: no pattern matches the request", ErrNoKey)
)

// Route returns a [Key] that is the route that a request matches, such as
// "GET /users/{id}". Each route has a count of its own:
//
//	keyfunc.Join(keyfunc.IP, keyfunc.Route(func(r *http.Request) string { return r.Pattern }))
//
// route returns "" if there is no route. It must never return the path, because a
// client can send as many paths as it likes. A router knows the route only after it has
// routed the request. So either put the middleware on the route, or let the function
// look the route up in the router:
//
//	r.Pattern                                   net/http, on the route: mux.Handle(pattern, limit.Handler(h))
//	Mux(mux)                                    net/http, around the ServeMux
//	chi.RouteContext(r.Context()).RoutePattern()          chi, on the route: router.With(limit.Handler)
//	Find of that router, as in the example                chi, around the router or a sub-router
//
// The error is [ErrNoKey] if route returns "". Requests without a route share one count
// for all clients, unless [Optional] leaves them to another rule. A nil route is a
// mistake.
func Route(route func(*http.Request) string) Key {
	return byRoute("route", hint.Traits{Route: true, Opaque: true}, ifNil("Route", route == nil), errNoRoute, route)
}

// Mux returns a [Key] that is the pattern of mux that a request matches. It works even
// before mux has seen the request. If mux would redirect the request to another
// spelling of its path, the key is the pattern of that path.
//
// The error is [ErrNoKey] if no pattern matches the request and its method. A nil
// mux is a mistake.
func Mux(mux *http.ServeMux) Key {
	return byRoute("mux", hint.Traits{Route: true}, ifNil("Mux", mux == nil), errNoPattern, func(r *http.Request) string {
		if r.URL == nil {
			return ""
		}
		_, pattern := mux.Handler(r)
		// Of a CONNECT that is redirected from /tree to /tree/, Handler returns the
		// path instead. It asks by the URL's host for that.
		if path := r.URL.EscapedPath(); r.Method == http.MethodConnect && strings.HasSuffix(pattern, "/") && !strings.HasSuffix(path, "/") {
			redirected := *r
			redirected.Host, redirected.URL = r.URL.Host, &url.URL{Path: r.URL.Path + "/", RawPath: path + "/"}
			_, pattern = mux.Handler(&redirected)
		}
		return pattern
	})
}

func byRoute(name string, traits hint.Traits, wrong, none error, route func(*http.Request) string) *key {
	return leaf(name, traits, wrong, func(r *http.Request) (string, error) {
		pattern := route(r)
		if pattern == "" {
			return "", none
		}
		return pattern, nil
	}, plain)
}
