package recipes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed75154129/ratelimit"
	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	"github.com/seed75154129/ratelimit/middleware"
)

// Header fields that upstreams trust, because proxies set them.
var proxyFields = []string{
	"CF-Connecting-IP", "True-Client-IP", "X-Client-IP", "X-HTTP-Method-Override", "X-Original-URL", "X-Real-IP", "X-Remote-User", "X-Rewrite-URL", "X-User-Id",
}

// oddPath matches paths that some upstreams read as other paths.
var oddPath = regexp.MustCompile(`(?i)[;\\]|%(0|1|2[35ef]|3[bf]|5c|7f)`)

func reverseProxy(limit *ratelimit.Middleware, proxies keyfunc.Proxies, upstream *url.URL) http.Handler {
	proxy := limit.Handler(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			for name := range r.Out.Header { // CGI and WSGI read X_User_Id as X-User-Id
				if strings.HasPrefix(name, "X-Forwarded-") || strings.Contains(name, "_") {
					delete(r.Out.Header, name)
				}
			}
			for _, name := range proxyFields {
				r.Out.Header.Del(name)
			}
			if !strings.EqualFold(r.Out.Header.Get("Upgrade"), "websocket") { // after an upgrade to h2c, requests bypass the limiter
				r.Out.Header.Del("Upgrade")
				r.Out.Header.Del("Connection")
			}
			r.SetURL(upstream)
			r.SetXForwarded()
			r.Out.Header.Del("X-Forwarded-For")
			if addr, err := proxies.Addr(r.In); err == nil {
				r.Out.Header.Set("X-Forwarded-For", addr.String())
			}
		},
		ModifyResponse: middleware.ModifyResponse, // merges the upstream's rate-limit fields
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect || oddPath.MatchString(r.URL.EscapedPath()) || !utf8.ValidString(r.URL.Path) {
			http.Error(w, "odd path", http.StatusBadRequest)
			return
		}
		proxy.ServeHTTP(w, r)
	})
}

// A socket adapts your WebSocket library.
type socket interface {
	Read(context.Context) ([]byte, error)
	Close(reason string) error
}

// messages serves a WebSocket. limit charges each message like r, the request that opened
// the connection.
func messages(limit *ratelimit.Middleware, r *http.Request, conn socket, handle func([]byte)) error {
	for {
		message, err := conn.Read(r.Context())
		if err != nil {
			return err
		}
		d, err := limit.Take(r)
		switch {
		case err != nil:
			return errors.Join(err, conn.Close("no key"))
		case d.RetryAfter() == algorithms.Never:
			return conn.Close("the message costs more than its limit")
		case !d.Allowed:
			return conn.Close(fmt.Sprint("too many messages; retry in ", d.RetryAfter()))
		}
		if err := awaitTurn(r.Context(), d); err != nil {
			return err
		}
		handle(message)
	}
}

// awaitTurn waits if a leaky_bucket delays the request.
func awaitTurn(ctx context.Context, d ratelimit.Decision) error {
	if d.Delay() == 0 {
		return nil
	}
	select {
	case <-time.After(d.Delay()):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// events serves server-sent events. A stream is one request.
func events(source func(context.Context) <-chan string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		out := http.NewResponseController(w)
		_ = out.SetWriteDeadline(time.Now().Add(time.Hour)) // the server's WriteTimeout would end the stream
		_ = out.Flush()                                     // the client sees that the stream is open
		for event := range source(r.Context()) {
			if _, err := fmt.Fprintf(w, "data: %s\n\n", event); err != nil || out.Flush() != nil {
				return
			}
		}
	}
}
