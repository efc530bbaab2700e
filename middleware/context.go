package middleware

import (
	"context"
	"net/http"

	"github.com/seed75154129/ratelimit/algorithms"
)

// A passage is what one middleware decided on a request, for what is behind it.
type passage struct {
	outer    *passage // of the middleware in front; nil if there is none
	by       *Middleware
	set      *ruleset
	decision algorithms.Decision
	header   http.Header // of the response
}

type passageKey struct{}

// passageOf returns the passage of the innermost middleware; nil where no rule
// applied.
func passageOf(ctx context.Context) *passage {
	p, _ := ctx.Value(passageKey{}).(*passage)
	return p
}

// pass returns the request with what was decided on it.
func (m *Middleware) pass(w http.ResponseWriter, r *http.Request, v *verdict) *http.Request {
	ctx := r.Context()
	p := &passage{passageOf(ctx), m, v.set, v.decision, w.Header()}
	return r.WithContext(context.WithValue(ctx, passageKey{}, p))
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
		return p.decision, true
	}
	return p.together(), true
}

// together joins the decisions of chained middlewares.
func (p *passage) together() algorithms.Decision {
	if p == nil {
		return algorithms.Decision{Allowed: true}
	}
	d := p.outer.together()
	d.Allowed = d.Allowed && p.decision.Allowed
	d.Results = append(d.Results, p.decision.Results...)
	return d
}
