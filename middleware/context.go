package middleware

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"sync"

	"github.com/seed75154129/ratelimit/algorithms"
)

// A passage is what one middleware decided on a request, for what is behind it. It
// is the context of the request that the next handler gets: one that has a value
// more than its parent.
type passage struct {
	context.Context
	outer  *passage // of the middleware in front; nil if there is none
	by     *Middleware
	set    *ruleset
	header http.Header // of the response
	inner  *passage    // that writes the same header; nil if there is none
	found  http.Header // fields of others that were in the header before; nil if none
	wrote  http.Header // the fields as they were last written; nil where nobody needs it
	held   *held       // released when the handler has returned and nothing is kept

	mu       sync.Mutex
	decision algorithms.Decision // its Results are never changed, only replaced
	settled  []int               // results that cannot be settled any more
	returned bool                // the handler
	holds    int                 // what Hold returned and was not called
}

type passageKey struct{}

// Value implements [context.Context].
func (p *passage) Value(key any) any {
	if key == (passageKey{}) {
		return p
	}
	return p.Context.Value(key)
}

// String implements [fmt.Stringer], as other contexts do: printing a request must not
// read what handlers may be changing.
func (p *passage) String() string { return fmt.Sprintf("%v.WithValue(ratelimit.decision)", p.Context) }

// passageOf returns the passage of the innermost middleware; nil where no rule
// applied.
func passageOf(ctx context.Context) *passage {
	p, _ := ctx.Value(passageKey{}).(*passage)
	return p
}

// pass returns the request with what was decided on it.
func (m *Middleware) pass(w http.ResponseWriter, r *http.Request, v *verdict) *http.Request {
	ctx := r.Context()
	p := &passage{Context: ctx, outer: passageOf(ctx), by: m, set: v.set, decision: v.decision, header: w.Header(), found: v.found, held: v.held}
	wraps := v.set.charges(&v.decision)
	if p.outer != nil && sameHeader(p.outer.header, p.header) {
		p.outer.inner, p.found = p, nil
		wraps = wraps || p.outer.wrote != nil
	}
	if wraps {
		p.wrote = fieldsOf(p.header)
	}
	v.passage = p
	return r.WithContext(p)
}

// sameHeader reports whether two headers are those of one response.
func sameHeader(a, b http.Header) bool {
	return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
}

// FromContext returns the decision on a request, for handlers; false if no rule
// applied. If there are several middlewares around the handler, it has the results
// of all, the outermost first. [algorithms.Decision.Result] returns the result of
// one rule, from the innermost middleware that has it.
func FromContext(ctx context.Context) (algorithms.Decision, bool) {
	p := passageOf(ctx)
	switch {
	case p == nil:
		return algorithms.Decision{}, false
	case p.outer == nil:
		return p.decided(), true
	}
	return p.together(), true
}

// together joins the decisions of chained middlewares.
func (p *passage) together() algorithms.Decision {
	if p == nil {
		return algorithms.Decision{Allowed: true}
	}
	d, own := p.outer.together(), p.decided()
	d.Allowed = d.Allowed && own.Allowed
	d.Results = append(d.Results, own.Results...)
	return d
}
