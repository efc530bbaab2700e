package recipes

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

func reverseProxy(limit *ratelimit.Middleware, upstream *url.URL) http.Handler {
	return limit.Handler(&httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(upstream); r.SetXForwarded() },
		ModifyResponse: ratelimit.ModifyResponse, // if the upstream has limits too: one set of headers, the tighter
	})
}

// A socket is what all WebSocket libraries have.
type socket interface {
	Read(context.Context) ([]byte, error)
	Close(reason string) error
}

// messages serves a WebSocket. The rules of limit count messages: the request that
// opened the connection says whose they are.
func messages(limit *ratelimit.Middleware, r *http.Request, conn socket, handle func([]byte)) error {
	for {
		message, err := conn.Read(r.Context())
		if err != nil {
			return err
		}
		d, err := limit.Take(r)
		if err != nil || !d.Allowed {
			return conn.Close(fmt.Sprint("too many messages; retry in ", d.RetryAfter()))
		}
		handle(message)
	}
}

// events serves server-sent events behind limit.Handler: a stream is one request,
// and flushes as without the limiter.
func events(source func(context.Context) <-chan string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		out := http.NewResponseController(w)
		_ = out.SetWriteDeadline(time.Now().Add(time.Hour)) // the server's WriteTimeout would end it
		_ = out.Flush()                                     // the client sees that the stream is open
		for event := range source(r.Context()) {
			if _, err := fmt.Fprintf(w, "data: %s\n\n", event); err != nil || out.Flush() != nil {
				return
			}
		}
	}
}
