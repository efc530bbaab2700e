package replay

import (
	"context"
	"slices"

	"github.com/seed75154129/ratelimit/algorithms"
)

// A demand finds how large the limits would have to be: it counts the requests as
// if nothing was ever denied.
type demand struct {
	memory algorithms.Memory
	checks []algorithms.Check // of the request under way, for all candidates
	of     []wanted
}

// A wanted need is that of one client, for one candidate of a rule.
type wanted struct {
	client *client
	which  int
	free   bool // the response is not charged
}

// ask adds the current request's checks of a rule's candidates.
func (d *demand) ask(r *rule, c *client, check *algorithms.Check, status int) {
	free := r.ChargeOn != nil && answered(status) && !slices.Contains(r.ChargeOn, status)
	for i, candidate := range r.candidates {
		d.checks = append(d.checks, algorithms.Check{Rule: candidate.name, Key: check.Key, Cost: check.Cost, Limit: candidate.limit, Shadow: true})
		d.of = append(d.of, wanted{c, i, free})
	}
}

// count counts the current request, and finds the quotas that its clients need.
func (d *demand) count() {
	if len(d.checks) == 0 {
		return
	}
	counted, err := d.memory.Take(context.Background(), d.checks...)
	if err != nil {
		panic(err) // the checks are valid
	}
	var free []algorithms.Charge
	for i := range counted.Results {
		res, w := &counted.Results[i], &d.of[i]
		need := int64(unreachable)
		if res.HasRoom {
			need = res.Check.Limit.Quota() - res.Remaining
		}
		w.client.needs[w.which] = max(w.client.needs[w.which], need)
		if w.free && res.Charged > 0 {
			free = append(free, algorithms.Charge{Result: *res})
		}
	}
	if len(free) > 0 {
		_, _ = d.memory.Settle(context.Background(), free...) // what stays charged errs towards larger limits
	}
	d.checks, d.of = d.checks[:0], d.of[:0]
}
