package failmode

import (
	"context"
	"slices"

	"github.com/seed75154129/ratelimit/algorithms"
)

// recall decides a request that is known to be denied. Nothing charges it then. It
// passes other requests on to the store, with a copy of the checks, made if it is nil: a
// limiter may keep it, while the checks themselves stay on the caller's stack.
func (g *Guard) recall(ctx context.Context, checks, copied []algorithms.Check) (algorithms.Decision, error) {
	d, denied, again := g.denied.Decide(checks)
	if denied && algorithms.Validate(checks...) == nil { // of invalid checks the store says what is wrong
		return d, nil
	}
	if copied == nil {
		copied = slices.Clone(checks)
	}
	asked, resets := g.denied.Now(), g.resets.Load()
	d, err := g.route(ctx, true, copied)
	if err != nil { // the checks are invalid: nobody waits for this answer
		for i := 0; again && i < len(checks); i++ {
			g.denied.Forget(&checks[i])
		}
		return d, err
	}
	for i := range d.Results {
		if r := &d.Results[i]; ofStore(r) {
			g.denied.Learn(asked, r, again)
		}
	}
	g.follow(resets, d.Results)
	return d, nil
}
