package keyfunc_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"

	"github.com/go-chi/chi/v5"
	"pgregory.net/rapid"

	"github.com/seed75154129/ratelimit/keyfunc"
)

func pattern(r *http.Request) string { return r.Pattern }

func TestRoute(t *testing.T) {
	wantKey(t, keyfunc.Route(func(*http.Request) string { return "GET /users/{id}" }), req, "GET /users/{id}")
	wantErr(t, keyfunc.Route(pattern), req, keyfunc.ErrNoKey)
}

// report is a handler that puts the key of f, or "-", into keys.
func report(f keyfunc.Key, keys *[]string) http.Handler {
	return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		key, err := f.Resolve(r)
		if errors.Is(err, keyfunc.ErrNoKey) {
			key = "-"
		}
		*keys = append(*keys, key)
	})
}

func TestRouteOfChi(t *testing.T) {
	var keys []string
	router := chi.NewRouter()
	onRoute := keyfunc.Route(func(r *http.Request) string { return chi.RouteContext(r.Context()).RoutePattern() })
	around := keyfunc.Route(func(r *http.Request) string { return router.Find(chi.NewRouteContext(), r.Method, r.URL.Path) })
	router.Handle("/users/{id}", report(onRoute, &keys))
	router.Handle("/around/{id}", http.NotFoundHandler())
	for _, path := range []string{"/users/1", "/users/2"} {
		router.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil))
	}
	for _, path := range []string{"/around/1", "/users/2", "/nowhere/3"} {
		report(around, &keys).ServeHTTP(nil, httptest.NewRequest(http.MethodGet, path, nil))
	}
	if want := []string{"/users/{id}", "/users/{id}", "/around/{id}", "/users/{id}", "-"}; !slices.Equal(keys, want) {
		t.Errorf("got %q", keys)
	}
}

// spelled returns a request as a server would read it.
func spelled(method, path string) *http.Request {
	u, err := url.ParseRequestURI(path)
	if err != nil {
		return nil
	}
	return &http.Request{Method: method, URL: u, Host: "example.com:8080", RequestURI: path, Header: http.Header{}}
}

func TestPathSpellingsGiveNoOtherRoute(t *testing.T) {
	mux := http.NewServeMux()
	for _, pattern := range []string{"POST /auth/login", "GET /users/{id}/", "/files/{path...}", "GET /tree/{$}", "/dirs/{name}/"} {
		mux.Handle(pattern, http.NotFoundHandler())
	}
	f := keyfunc.Mux(mux)
	for _, tc := range []struct{ method, path, want string }{
		{"POST", "/auth/login", "POST /auth/login"},
		{"POST", "//auth/login", "POST /auth/login"},
		{"POST", "/auth/./login", "POST /auth/login"},
		{"POST", "/x/../auth/login", "POST /auth/login"},
		{"POST", "/auth/login?a=b", "POST /auth/login"},
		{"POST", "/auth/%6cogin", "POST /auth/login"},
		{"POST", "/auth/login/", ""},
		{"POST", "/auth/Login", ""},
		{"GET", "/auth/login", ""},
		{"GET", "/nowhere/4711", ""},
		{"GET", "/users/4711", "GET /users/{id}/"}, // a redirect, which says the path
		{"GET", "/users//4711", "GET /users/{id}/"},
		{"GET", "/users/47%2F11", "GET /users/{id}/"},
		{"GET", "/users/4711/a", "GET /users/{id}/"},
		{"GET", "/tree", "GET /tree/{$}"},
		{"CONNECT", "/files", "/files/{path...}"},
		{"CONNECT", "/files/..", "/files/{path...}"}, // not cleaned
		{"CONNECT", "/dirs/..%2F", "/dirs/{name}/"},
		{"GET", "/files/a/b", "/files/{path...}"},
	} {
		r := spelled(tc.method, tc.path)
		if tc.want == "" {
			wantErr(t, f, r, keyfunc.ErrNoKey)
		} else {
			wantKey(t, f, r, tc.want)
		}
	}
}

func TestMuxNeverGivesThePath(t *testing.T) {
	patterns := []string{"/a/", "GET /a/b", "/c/{x}/", "POST /a/{x}/{y...}", "/d/{x}/{$}", "CONNECT /e/{x}/", "/b/{x}"}
	mux := http.NewServeMux()
	for _, pattern := range patterns {
		mux.Handle(pattern, http.NotFoundHandler())
	}
	f := keyfunc.Mux(mux)
	rapid.Check(t, func(t *rapid.T) {
		method := rapid.SampledFrom([]string{"GET", "POST", "CONNECT", "OPTIONS"}).Draw(t, "method")
		path := "/" + rapid.StringMatching(`((a|b|c|d|e|\.|\.\.|%2F|%2e|%61|x)?/?){0,5}`).Draw(t, "path")
		r := spelled(method, path)
		if r == nil {
			t.Skip("no path")
		}
		key, err := f.Resolve(r)
		if err == nil && !slices.Contains(patterns, key) || err != nil && !errors.Is(err, keyfunc.ErrNoKey) {
			t.Fatalf("%s %s: got %q, %v", method, path, key, err)
		}
	})
}
