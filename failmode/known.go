package failmode

import (
	"context"
	"fmt"
	"slices"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/denials"
	"github.com/seed75154129/ratelimit/internal/inside"
)

// errUnanswered is why a request that waited for others is not decided by the store:
// those got no answer. It is no outage, so the request is counted locally in every
// mode.
var errUnanswered = fmt.Errorf("failmode: others that asked for the key got no answer: %w", context.DeadlineExceeded)

// recall decides a request that is known to be denied. Nothing charges it then. It
// passes other requests on to the store, with a copy of the checks, made if it is nil: a
// limiter may keep it, while the checks themselves stay on the caller's stack.
func (g *Guard) recall(ctx context.Context, checks, copied []algorithms.Check) (algorithms.Decision, error) {
	var few [4]denials.Lookup
	lookups := few[:]
	if len(checks) > len(few) {
		lookups = make([]denials.Lookup, len(checks))
	}
	lookups = lookups[:len(checks)]
	if g.denied.Used() && lent.Valid(checks) { // of invalid checks the store says what is wrong
		d, outcome, until := g.denied.Decide(ctx, checks, lookups, g.store.Budget())
		switch outcome {
		case denials.Denied:
			return d, nil
		case denials.Unanswered:
			return g.decideFallback(ctx, true, undecided(checks, errUnanswered))
		}
		if !until.IsZero() {
			ctx = inside.PartOf(ctx, until)
		}
	}
	if copied == nil {
		copied = slices.Clone(checks)
	}
	return g.routeAndLearn(ctx, copied, lookups)
}

// routeAndLearn has a request decided and charged, and remembers what the store
// answered.
func (g *Guard) routeAndLearn(ctx context.Context, checks []algorithms.Check, lookups []denials.Lookup) (d algorithms.Decision, err error) {
	learned := false
	defer func() {
		for i := range lookups {
			if !learned { // an error of the caller's, or a panic
				g.denied.Release(&lookups[i], false)
			}
		}
	}()
	asked := g.denied.Now()
	if d, err = g.route(ctx, true, checks); err != nil {
		return d, err
	}
	learned = true
	for i := range d.Results {
		if r := &d.Results[i]; ofStore(r) {
			g.denied.Learn(asked, &lookups[i], r)
		} else {
			g.denied.Release(&lookups[i], r.Source != algorithms.SourceNone)
		}
	}
	g.follow(asked, d.Results)
	return d, nil
}
