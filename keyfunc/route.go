package keyfunc

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"
)

// ErrNoRoute is the [ErrNoKey] of [Route] and [Mux]: the route of the request is
// not known, or not yet.
var ErrNoRoute = fmt.Errorf("%w: the request matches no route", ErrNoKey)

// Route returns a [Func] whose key is the route that a request matches, such as
// "GET /users/{id}", for a count of its own for each:
//
//	keyfunc.Join(keyfunc.IP, keyfunc.Route(func(r *http.Request) string { return r.Pattern }))
//
// route returns "" where it knows none; it must never return the path, of which the
// client has as many as it likes. A router knows the route only once it has routed,
// so the limiter has to be mounted on the route, or route has to ask the router:
//
//	r.Pattern                                   net/http, on the route: mux.Handle(pattern, limit.Handler(h))
//	Mux(mux)                                    net/http, around the ServeMux
//	chi.RouteContext(r.Context()).RoutePattern()          chi, on the route: router.With(limit.Handler)
//	router.Find(chi.NewRouteContext(), r.Method, r.URL.Path)   chi, around the router
//
// The error is [ErrNoRoute] if route returns "". It is another if route is nil: a
// mistake, reported on every request.
func Route(route func(*http.Request) string) Func {
	if route == nil {
		return failing(errors.New("keyfunc: Route of a nil function"))
	}
	return func(r *http.Request) (string, error) {
		pattern := route(r)
		if pattern == "" {
			return "", ErrNoRoute
		}
		return pattern, nil
	}
}

// Mux returns a [Func] whose key is the pattern of mux that a request matches, also
// before mux has seen it. A request that mux redirects, because its path is spelled
// otherwise, has the pattern that it is redirected to.
//
// The error is [ErrNoRoute] if no pattern matches, which includes the method. It
// is another if mux is nil: a mistake, reported on every request.
func Mux(mux *http.ServeMux) Func {
	if mux == nil {
		return failing(errors.New("keyfunc: Mux of a nil ServeMux"))
	}
	return Route(func(r *http.Request) string {
		_, pattern := mux.Handler(r)
		// For a redirect from /tree to /tree/, Handler may return the path instead.
		if strings.HasSuffix(pattern, "/") && !strings.HasSuffix(r.URL.Path, "/") && path.Clean("/"+r.URL.Path)+"/" == pattern {
			redirected := *r
			redirected.URL = &url.URL{Path: pattern, Host: r.URL.Host}
			_, pattern = mux.Handler(&redirected)
		}
		return pattern
	})
}
