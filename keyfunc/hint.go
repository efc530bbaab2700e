package keyfunc

import (
	"context"
	"net/http"
)

type hintsKey struct{}

// WithHints returns a context for a request on which key functions tell hint what
// looks like a mistake in how they were set up. They do so on each request: hint has
// to see that it is said once. The middleware watches its first requests so.
func WithHints(ctx context.Context, hint func(string)) context.Context {
	return context.WithValue(ctx, hintsKey{}, hint)
}

// hint is called where something is wrong only, so that nothing else pays for it.
func hint(r *http.Request, text string) {
	if tell, ok := r.Context().Value(hintsKey{}).(func(string)); ok {
		tell(text)
	}
}

// hintAtEverybody hints at a network that trusts whoever connects.
func (p Proxies) hintAtEverybody(r *http.Request, header string) {
	for _, network := range p.Trusted {
		if network.Bits() == 0 {
			hint(r, "keyfunc.Proxies trusts "+network.String()+", which is everybody: any client can choose its address with "+
				header+"; list the networks of your own proxies")
		}
	}
}
