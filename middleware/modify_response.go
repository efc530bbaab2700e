package middleware

import (
	"net/http"

	"github.com/seed75154129/ratelimit/internal/field"
)

// ModifyResponse merges the rate limit headers of an upstream with those of the
// middlewares in front. It is for [net/http/httputil.ReverseProxy], which would
// send both. The client gets the tighter set. An upstream's Retry-After stays as
// it is. Set it always: ReverseProxy clears the middlewares' fields after an
// informational response (1xx) of the upstream, and ModifyResponse sets them again.
//
// It needs the request's context, which ReverseProxy passes on. If no rule
// applied, it does nothing. No handler that answers by itself after a timeout,
// such as [http.TimeoutHandler], may be between the middleware and the proxy.
func ModifyResponse(resp *http.Response) error {
	if resp.Request == nil {
		return nil
	}
	ctx := resp.Request.Context()
	p := passageOf(ctx)
	if p == nil {
		return nil
	}
	select {
	case <-ctx.Done(): // somebody else may be writing the response
		return nil
	default:
	}
	first := p.first()
	for _, name := range field.Limits() {
		if lines := resp.Header[name]; len(lines) > 0 {
			p.header[name] = append(p.header[name], lines...)
			if first.found == nil {
				first.found = make(http.Header)
			}
			first.found[name] = append(first.found[name], lines...)
			delete(resp.Header, name)
		}
	}
	p.write(p.header)
	p.remember()
	return nil
}

// write sets the headers of all passages, the outermost first.
func (p *passage) write(h http.Header) {
	if p != nil {
		p.outer.write(h)
		p.by.headers(h, p.set.shown(p.decided()))
	}
}
