package middleware

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/inside"
	"github.com/seed75154129/ratelimit/internal/pattern"
	"github.com/seed75154129/ratelimit/keyfunc"
)

const (
	// maxEntries is how many entries Rule.Match, Costs, Tiers and Overrides may have: patterns
	// are compared with each other, and costs with the limits of tiers.
	maxEntries = 1000
	// maxConflicts is how many conflicts among the patterns of Costs are looked for, and how
	// many limits that are too small for a cost are named.
	maxConflicts = 10
)

// maxWindows is how many windows a request may have by one rule.
const maxWindows = 8

// validateLimits reports what is wrong with the limits that a request has together.
func validateLimits(limits []algorithms.Limit) error {
	if len(limits) == 0 || len(limits) > maxWindows {
		return fmt.Errorf("%d limits; write 1 to %d", len(limits), maxWindows)
	}
	var errs []error
	for i, l := range limits {
		if l == unlimited {
			errs = append(errs, errors.New("Unlimited is for a tier, an override or LimitsFor, alone and not beside other limits; to turn a whole rule off, leave it out or set Shadow"))
			continue
		}
		if l.Calendar == "" {
			errs = append(errs, longEnough("the period", &l.Period))
		}
		errs = append(errs, l.Validate())
		if isHeld(l) && len(limits) > 1 {
			errs = append(errs, fmt.Errorf("%s counts requests, and other limits may count units; write two rules", l))
		}
		for _, other := range limits[:i] {
			if lent.Counting(other) == lent.Counting(l) {
				errs = append(errs, fmt.Errorf("%s and %s are one count; keep one of them, or write another period", other, l))
			}
		}
	}
	return errors.Join(errs...)
}

// shortest is the shortest time that a rule may count by. Anything below is shorter
// than a decision may take, and limits nobody.
const shortest = 10 * time.Millisecond

// longEnough reports a duration whose unit was forgotten, and replaces it, so that it is
// reported once.
func longEnough(what string, d *time.Duration) error {
	if *d <= 0 || *d >= shortest {
		return nil
	}
	err := inside.TooShort(what, *d, shortest)
	*d = shortest
	return err
}

func (r *Rule) validateBan(bad func(string, error)) {
	if r.Ban == (algorithms.Ban{}) {
		return
	}
	b := r.Ban
	bad("Ban", longEnough("for:", &b.For))
	bad("Ban", longEnough("within:", &b.Within))
	bad("Ban", b.Validate())
	for by, limits := range r.sets() {
		err := banBy(r.Ban, limits)
		if err != nil && by != (holder{}) {
			err = fmt.Errorf("by %s: %w", by, err)
		}
		bad("Ban", err)
	}
	if r.Key != nil && keyfunc.Describe(r.Key).Values() == 0 {
		bad("Ban", errors.New("all clients have one key, so each of them could have all others denied: "+
			"ban by another key, such as keyfunc.IP, or leave the ban out"))
	}
}

// banBy reports why denials by limits cannot lead to a ban.
func banBy(b algorithms.Ban, limits []algorithms.Limit) error {
	switch {
	case b == (algorithms.Ban{}):
	case !slices.ContainsFunc(limits, leadsToBan):
		return errors.New("denials by calendar windows lead to no ban, since a client that has used up its quota is no attacker; add a limit with a short period, or leave the ban out")
	case len(limits) > 1 && b.Within == 0:
		return errors.New("needs within, since the periods of several limits differ")
	}
	return nil
}

// tooMuch is what is wrong with a cost that some of the limits can never hold.
func tooMuch(cost int64, limits []ruleLimit) (errs []error) {
	further := 0
	for _, l := range limits {
		if cost <= l.Quota() {
			continue
		}
		if len(errs) < maxConflicts {
			errs = append(errs, fmt.Errorf("%d is above the %d units that %s can hold: no request would pass", cost, l.Quota(), l))
		} else {
			further++
		}
	}
	if further > 0 {
		errs = append(errs, fmt.Errorf("%d is above what %d further limits can hold", cost, further))
	}
	return errs
}

func (r *Rule) validateCosts(match []pattern.Pattern, limits []ruleLimit, bad func(string, error)) {
	if len(r.Costs) > maxEntries {
		bad("Costs", fmt.Errorf("%d patterns; at most %d", len(r.Costs), maxEntries))
		return
	}
	mux, conflicts := http.NewServeMux(), 0
	for _, text := range slices.Sorted(maps.Keys(r.Costs)) {
		p, err := pattern.Parse(text)
		if err == nil && conflicts < maxConflicts {
			if err = pattern.Conflict(mux, text); err != nil {
				conflicts++
			}
		}
		if err == nil && match != nil && !slices.ContainsFunc(match, func(m pattern.Pattern) bool { return m.Meets(&p) }) {
			err = fmt.Errorf("pattern %q: the rule matches no such request, so the cost would never apply; let the rule match it, or leave the cost out", text)
		}
		bad("Costs", err)
		if cost := r.Costs[text]; cost < 1 {
			bad("Costs", fmt.Errorf("pattern %q: must cost at least 1, got %d", text, cost))
		} else {
			for _, err := range tooMuch(cost, limits) {
				bad("Costs", fmt.Errorf("pattern %q: %w", text, err))
			}
		}
	}
}

func (r *Rule) validateChargeOn(limits []ruleLimit, bad func(string, error)) {
	if r.ChargeOn == nil {
		return
	}
	if len(r.ChargeOn) == 0 {
		bad("ChargeOn", errors.New("empty: every response would be given back; leave it nil to charge all"))
	}
	for i, status := range r.ChargeOn {
		if status < 200 || status > 599 {
			bad("ChargeOn", fmt.Errorf("status %d: must be 200 to 599", status))
		} else if slices.Contains(r.ChargeOn[:i], status) {
			bad("ChargeOn", fmt.Errorf("status %d: listed twice", status))
		}
	}
	for _, l := range limits {
		if !isWindow(l.Limit) {
			bad("ChargeOn", fmt.Errorf("needs a window, from which all can be given back, and %s is none; use %s, %s or %s",
				l, algorithms.FixedWindow, algorithms.SlidingWindow, algorithms.SlidingLog))
		}
	}
}

func (r *Rule) validateLease(limits []ruleLimit, bad func(string, error)) {
	if !r.Lease {
		return
	}
	for _, l := range limits {
		if !grantsBlocks(l.Limit) {
			bad("Lease", fmt.Errorf("units can be taken in batches only by %s and %s, and %s is neither; leave the lease out",
				algorithms.FixedWindow, algorithms.SlidingWindow, l))
		}
	}
	for _, limits := range r.sets() {
		if len(limits) > 1 {
			bad("Lease", errors.New("does not go with several limits, which have room together; lease by a rule of its own"))
			break
		}
	}
	if r.ChargeOn != nil {
		bad("Lease", errors.New("does not go with charging by response: units of a batch are not given back one by one; leave one of them out"))
	}
	if r.Ban != (algorithms.Ban{}) {
		bad("Lease", errors.New("does not go with a ban: who is denied inside a batch is not counted in Redis; leave one of them out"))
	}
}

// validateRetryAfter says whether a rule can have its RetryAfter.
func (r *Rule) validateRetryAfter(bad func(string, error)) {
	switch d := r.RetryAfter; {
	case d == 0:
	case d < time.Second || d > time.Hour:
		bad("RetryAfter", fmt.Errorf("must be from a second to an hour, got %s; write one such as 15*time.Second, in a file 15s", d))
	case !r.hasHeld():
		bad("RetryAfter", errors.New("is for limits in flight, such as 2 in flight; others know when they have room: leave it out"))
	}
}

// validateHeld says what a rule on requests in flight cannot have.
func (r *Rule) validateHeld(bad func(string, error)) {
	const one = "a request in flight costs 1; leave it out, and count units by another rule, such as one with the limit 1000/1m"
	if r.Cost > 1 {
		bad("Cost", fmt.Errorf("%s; got %d", one, r.Cost))
	}
	if r.Costs != nil {
		bad("Costs", errors.New(one))
	}
	if r.CostFor != nil {
		bad("CostFor", errors.New(one))
	}
	if r.ChargeOn != nil {
		bad("ChargeOn", errors.New("every request in flight is released when it ends, whatever its status; leave it out, or write another rule with a window, such as 5/1m"))
	}
	if r.Ban != (algorithms.Ban{}) {
		bad("Ban", errors.New("not with in_flight, whose denials come of requests that end; put the ban on a rule with a rate, such as 100/1m"))
	}
	if r.Lease {
		bad("Lease", errors.New("not with in_flight, which has no units to take in batches; leave it out"))
	}
}
