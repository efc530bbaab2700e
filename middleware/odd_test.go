package middleware_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/headers"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// Requests that programs make by hand lack what net/http always sets.
func TestOddRequestsDoNotPanic(t *testing.T) {
	keys := []keyfunc.Key{
		keyfunc.IP, keyfunc.Everyone, keyfunc.Mux(http.NewServeMux()),
		keyfunc.Required(keyfunc.BodyJSON("a", 1<<10), 400), keyfunc.Optional(keyfunc.BodyForm("a", 1<<10)),
		keyfunc.First(keyfunc.BodyJSON("a", 64), keyfunc.Mux(http.NewServeMux()), keyfunc.IP),
	}
	var rules []ratelimit.Rule
	for i, k := range keys {
		rules = append(rules, ratelimit.Rule{Name: fmt.Sprint("r", i), Key: k, Limit: algorithms.PerHour(1000)})
		rules = append(rules, ratelimit.Rule{Name: fmt.Sprint("m", i), Match: []string{"POST /{x...}", "/a/{$}"}, Key: k, Limit: algorithms.PerHour(1000)})
	}
	m := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: rules, Skip: []string{"/health"}, Headers: headers.IETFDraft11})
	urls := []*url.URL{nil, {}, {Path: "*"}, {Opaque: "x:y"}, {Host: "h:443"}, {Path: "a//../../b"}, {Path: "/\x00%zz", RawPath: "/%00%zz"}, {RawQuery: "%zz;a=1&a"}}
	for _, method := range []string{"", "GET", "POST", "CONNECT", "OPTIONS", "\x00"} {
		for _, u := range urls {
			for _, body := range []io.ReadCloser{nil, http.NoBody, io.NopCloser(strings.NewReader(`{"a":1}`)), io.NopCloser(strings.NewReader(`a=%zz`))} {
				for _, ct := range []string{"", "application/json", "application/x-www-form-urlencoded"} {
					for _, h := range []http.Header{nil, {"Content-Type": {ct}, "Accept": {";;q=,"}, "X-Forwarded-For": {"", ",,"}}} {
						r := &http.Request{Method: method, URL: u, Body: body, Header: h, RemoteAddr: "", ContentLength: -1}
						func() {
							defer func() {
								if p := recover(); p != nil {
									t.Errorf("%q %v %v: %v", method, u, h, p)
								}
							}()
							_, _ = m.Take(r)
							_, _ = m.Peek(r)
							m.Handler(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), r)
						}()
					}
				}
			}
		}
	}
}
