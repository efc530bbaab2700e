package recipes

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/keyfunc"
)

// cheats change a request so that the handler still does what it asks for.
var cheats = map[string]func(*http.Request){
	"plain":             func(*http.Request) {},
	"GET":               func(r *http.Request) { r.Method = "GET" },
	"HEAD":              func(r *http.Request) { r.Method = "HEAD" },
	"PUT":               func(r *http.Request) { r.Method = "PUT" },
	"OPTIONS":           func(r *http.Request) { r.Method = "OPTIONS" },
	"CONNECT":           func(r *http.Request) { r.Method = "CONNECT" },
	"QUERY":             func(r *http.Request) { r.Method = "QUERY" },
	"post":              func(r *http.Request) { r.Method = "post" },
	"a method override": func(r *http.Request) { r.Header.Set("X-HTTP-Method-Override", "GET") },
	"a query":           func(r *http.Request) { r.URL.RawQuery = "email=else&query={x}" },
	"an escaped path":   func(r *http.Request) { r.URL.RawPath = strings.ReplaceAll(r.URL.Path, "e", "%65") },
	"another host":      func(r *http.Request) { r.Host = "else.example" },
	"another address":   func(r *http.Request) { r.Header.Set("X-Forwarded-For", "203.0.113.9") },
	"no Content-Type":   func(r *http.Request) { r.Header.Del("Content-Type") },
	"a form":            func(r *http.Request) { r.Header.Set("Content-Type", "application/x-www-form-urlencoded") },
	"text":              func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") },
	"two Content-Types": func(r *http.Request) { r.Header.Add("Content-Type", "text/plain") },
	"the field twice":   func(r *http.Request) { rebody(r, `{"email":"else","email":"victim@x"}`) },
	"EMAIL, too":        func(r *http.Request) { rebody(r, `{"email":"else","EMAIL":"victim@x"}`) },
	"EMAIL alone":       func(r *http.Request) { rebody(r, `{"EMAIL":"victim@x"}`) },
	"upper case":        func(r *http.Request) { rebody(r, `{"email":" VICTIM@x"}`) },
	"an escape":         func(r *http.Request) { rebody(r, `{"email":"victi\u006d@x"}`) },
	"a second value":    func(r *http.Request) { rebody(r, `{"email":"victim@x"}{"email":"else"}`) },
	"a long body":       func(r *http.Request) { rebody(r, `{"email":"victim@x","a":"`+strings.Repeat("a", 9<<10)+`"}`) },
	"a chunked body":    func(r *http.Request) { r.ContentLength = -1 },
}

func rebody(r *http.Request, body string) {
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
}

// By no cheat does a client, mixed with plain requests or alone, get more than the limit.
// Handlers are mounted without a method.
func TestRecipesCannotBeEvaded(t *testing.T) {
	for name, c := range map[string]struct {
		path string
		from func(i int) string // the address of request i; nil means always the same
		most int32
		make func(t *testing.T, work func()) http.Handler
	}{
		"expensive": {"/reports", nil, 2, func(t *testing.T, work func()) http.Handler {
			return limited(t, expensive(keyfunc.IP)...).Handler(works(work))
		}},
		"graphQL": {"/graphql", nil, 10, func(t *testing.T, work func()) http.Handler { // 10 queries of 100 points
			rule, h := graphQL(func(*http.Request) ([]byte, int64) { work(); return nil, 100 })
			return limited(t, rule).Handler(h)
		}},
		"exports": {"/exports", nil, 2, func(t *testing.T, work func()) http.Handler {
			rules, h := exports(keyfunc.IP, func(context.Context) { work(); time.Sleep(time.Minute) })
			return limited(t, rules...).Handler(h)
		}},
		"sockets": {"/ws", nil, 5, func(t *testing.T, work func()) http.Handler {
			return limited(t, sockets(keyfunc.IP)...).Handler(handedOn(
				func(http.ResponseWriter, *http.Request) (socket, error) { work(); return nil, nil },
				func(*http.Request, socket) { time.Sleep(time.Minute) }))
		}},
		"logins of an address": {"/auth/login", nil, 10, passwords},
		"logins to an account": {"/auth/login", func(i int) string { return fmt.Sprintf("198.51.%d.%d:1", i/250, i%250) }, 20, passwords},
	} {
		for cheat, change := range cheats {
			t.Run(name+"/"+cheat, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var worked atomic.Int32
					h := c.make(t, func() { worked.Add(1) })
					mux := http.NewServeMux()
					mux.Handle(c.path, h)
					for i := range 100 {
						r := httptest.NewRequest("POST", c.path, strings.NewReader(`{"email":"victim@x","query":"{x}"}`))
						r.Header.Set("Content-Type", "application/json")
						if c.from != nil {
							r.RemoteAddr = c.from(i)
						}
						if i%2 == 0 {
							change(r)
						}
						mux.ServeHTTP(httptest.NewRecorder(), r)
						synctest.Wait()
					}
					if n := worked.Load(); n == 0 || n > c.most {
						t.Errorf("%d of 100 were admitted, want at most %d", n, c.most)
					}
					time.Sleep(2 * time.Minute) // until all work has ended
				})
			})
		}
	}
}

func works(work func()) http.Handler {
	return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { work() })
}

// passwords is a handler that tries the victim's passwords, whatever the method and the
// type of the request.
func passwords(t *testing.T, work func()) http.Handler {
	return limited(t, logins(keyfunc.IP)...).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var login struct{ Email string }
		_ = json.NewDecoder(r.Body).Decode(&login)
		if strings.EqualFold(strings.TrimSpace(login.Email), "victim@x") {
			work()
		}
		w.WriteHeader(http.StatusUnauthorized)
	}))
}
