package recipes

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	"github.com/labstack/echo/v4"
	echomiddleware "github.com/labstack/echo/v4/middleware"
	"github.com/rs/cors"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// CORS middleware before the limiter answers preflights, which are not counted. An OPTIONS
// request that is no preflight reaches a handler without a method, and is counted.
func TestPreflights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tried := 0
		mux := http.NewServeMux()
		mux.HandleFunc("/login", func(http.ResponseWriter, *http.Request) { tried++ })
		limit := limited(t, ratelimit.Rule{Name: "r", Match: []string{"/login"}, Key: keyfunc.IP, Limit: algorithms.PerHour(10)})
		h := cors.New(cors.Options{AllowedOrigins: []string{"https://shop.example"}, ExposedHeaders: []string{"Retry-After"}}).Handler(limit.Handler(mux))
		send := func(method, asks string) func() *http.Request {
			return func() *http.Request {
				r := httptest.NewRequest(method, "/login", strings.NewReader(`{"password":"x"}`))
				r.Header.Set("Origin", "https://shop.example")
				if asks != "" {
					r.Header.Set("Access-Control-Request-Method", asks)
				}
				return r
			}
		}
		wants(t, "preflights", statuses(h, 200, send("OPTIONS", "POST")), 204, 200)
		wants(t, "preflights that are refused", statuses(h, 200, send("OPTIONS", "BREW")), 204, 200)
		wants(t, "no preflights", statuses(h, 200, send("OPTIONS", "")), 200, 10, 429, 190)
		if tried != 10 {
			t.Errorf("%d requests reached the handler", tried)
		}
		if w := answer(h, send("POST", "")()); w.Code != 429 || w.Header().Get("Access-Control-Allow-Origin") == "" || w.Header().Get("Access-Control-Expose-Headers") != "Retry-After" {
			t.Errorf("a page cannot read a denial: %d %v", w.Code, w.Header())
		}
	})
}

// The trust model says where the limiter belongs beside middleware that changes the
// method or the path.
func TestMiddlewareThatRewritesRequests(t *testing.T) {
	rule := ratelimit.Rule{Name: "r", Key: keyfunc.IP, Limit: algorithms.PerHour(10)}
	removal := rule
	removal.Match = []string{"DELETE /items"}
	done := 0
	work := func(http.ResponseWriter, *http.Request) { done++ }

	e := echo.New()
	e.Pre(echomiddleware.MethodOverride(), echo.WrapMiddleware(limited(t, removal).Handler))
	e.DELETE("/items", func(c echo.Context) error { done++; return c.NoContent(200) })
	override := func() *http.Request {
		r := from("192.0.2.1:1", "POST", "/items")()
		r.Header.Set("X-HTTP-Method-Override", "DELETE")
		return r
	}
	c := chi.NewRouter()
	c.Use(chimiddleware.URLFormat)
	c.With(limited(t, rule).Handler).Post("/login", work)

	for name, try := range map[string]struct {
		h       http.Handler
		request func() *http.Request
	}{
		"echo's MethodOverride": {e, override},
		"chi's URLFormat":       {c, from("192.0.2.1:1", "POST", "/login.x")},
	} {
		done = 0
		if wants(t, name, statuses(try.h, 50, try.request), 200, 10, 429, 40); done != 10 {
			t.Errorf("%s: %d requests were served", name, done)
		}
	}
}
