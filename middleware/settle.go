package middleware

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/near"
)

var (
	errSettled  = errors.New("settled before; a rule's charge is settled once per request")
	errReturned = errors.New("the handler has returned; settle before that, or call Hold first")
)

// Settle sets what the request behind ctx costs under one rule: the units that a query,
// an upload or a language model has used in the end. 0 refunds the whole charge. A cost
// above the charge may put the key into debt. A bucket pays its debt off as it refills;
// a window forgets its debt when it ends. If the response headers are not sent yet,
// Settle updates them. A handler that sets such a header itself must do so after
// Settle.
//
// Settle does nothing if the rule does not apply to the request, or has charged
// nothing. It does not change other rules. If several chained middlewares have a rule
// of this name, Settle is for the innermost. The charge of a rule is settled once per
// request: by the first Settle, or by a refund of ChargeOn if the status is written
// before. Further calls return an error. So do a negative cost, and calls after the
// handler has returned, unless [Hold] keeps the request. If the limiter returns an
// error, so does Settle, and the charge stays as it was, as far as is known. A name that
// no rule has is logged once.
//
// Call it on the goroutine that writes the response, as with
// [http.ResponseWriter.Header].
func Settle(ctx context.Context, rule string, cost int64) error {
	return SettleAll(ctx, map[string]int64{rule: cost})
}

// SettleAll is [Settle] for several rules, by name, in one command of the limiter; chained
// middlewares have one each. It settles the rules that it can, and its error names the
// others.
func SettleAll(ctx context.Context, costs map[string]int64) error {
	var errs []error
	rest := slices.Sorted(maps.Keys(costs))
	for s := stateOf(ctx); s != nil && len(rest) > 0; s = s.outer {
		var outer []string
		var all []ruleCost
		for _, rule := range rest {
			if s.decided(rule) {
				all = append(all, ruleCost{rule, costs[rule]})
			} else {
				outer = append(outer, rule)
			}
		}
		errs, rest = append(errs, s.settle(ctx, all)...), outer
	}
	for _, rule := range rest {
		hintUnknown(ctx, "Settle", rule)
	}
	return errors.Join(errs...)
}

// hintUnknown logs a rule's name that no middleware around the handler has, once.
func hintUnknown(ctx context.Context, verb, rule string) {
	const meaning = "unknown rule"
	innermost := stateOf(ctx)
	if innermost == nil {
		return
	}
	if _, again := innermost.set.hints.said.Load(meaning); again {
		return
	}
	var names []string
	for s := innermost; s != nil; s = s.outer {
		if _, ok := s.set.find(rule, 0); ok {
			return // the rule does not apply to the request
		}
		for i := range s.set.watches {
			names = append(names, s.set.watches[i].rule)
		}
	}
	mend := "; write the Name of a rule"
	if best := near.Word(rule, names); best != "" {
		mend = fmt.Sprintf("; did you mean %q?", best)
	}
	innermost.set.hints.sayOnce(meaning, fmt.Sprintf("%s: no rule is named %.64q, so nothing is counted%s", verb, rule, mend))
}

// A ruleCost is what a request costs by a rule in the end.
type ruleCost struct {
	rule  string
	units int64
}

// A usage is what is known of a request's use of one rule after the decision.
type usage struct {
	next    *usage
	rule    string
	settled bool // it cannot be settled again
}

// use returns the usage of a rule. It requires mu.
func (s *requestState) use(rule string) *usage {
	for u := s.used; u != nil; u = u.next {
		if u.rule == rule {
			return u
		}
	}
	s.used = &usage{next: s.used, rule: rule}
	return s.used
}

// decided reports whether the decision has a result of the rule.
func (s *requestState) decided(rule string) bool {
	results := s.current().Results
	return slices.ContainsFunc(results, func(r algorithms.Result) bool { return r.Check.Rule == rule })
}

// settle settles the rules that can be settled. Each error names its rule.
func (s *requestState) settle(ctx context.Context, costs []ruleCost) (errs []error) {
	var claimed []ruleCost
	for _, c := range costs {
		err := fmt.Errorf("cost must not be negative, got %d", c.units)
		if c.units >= 0 {
			err = s.claim(c.rule)
		}
		if err != nil {
			errs = append(errs, settleError(c.rule, err))
			continue
		}
		claimed = append(claimed, c)
	}
	return append(errs, s.settleAll(ctx, claimed)...)
}

func settleError(rule string, err error) error {
	return fmt.Errorf("middleware: settle: rule %q: %w", rule, err)
}

// claim allows its caller to settle a rule, which no other caller may do then.
func (s *requestState) claim(rule string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed && s.holds == 0 {
		return errReturned
	}
	u := s.use(rule)
	if u.settled {
		return errSettled
	}
	u.settled = true
	return nil
}

// settleAll settles claimed rules, in one call of the limiter, and rewrites the headers.
// Each error names its rule.
func (s *requestState) settleAll(ctx context.Context, costs []ruleCost) (errs []error) {
	d := s.current()
	var charges []algorithms.Charge
	var charged []int
	for i := range d.Results {
		r := &d.Results[i]
		at := slices.IndexFunc(costs, func(c ruleCost) bool { return c.rule == r.Check.Rule })
		if at >= 0 && r.Charged > 0 && r.Charged != costs[at].units {
			charges = append(charges, algorithms.Charge{Result: *r, Cost: costs[at].units})
			charged = append(charged, i)
		}
	}
	if len(charges) == 0 {
		return nil
	}
	results, err := s.by.limiter.Settle(ctx, charges...)
	if len(results) == len(charges) {
		s.mu.Lock()
		now := slices.Clone(s.decision.Results) // the old ones may be read
		for j, i := range charged {
			now[i] = results[j]
		}
		s.decision.Results = now
		s.mu.Unlock()
	}
	if !s.isClosed() {
		s.rewriteHeaders(ctx)
	}
	if err == nil {
		return nil
	}
	for j := range charges {
		if len(results) != len(charges) || results[j].Charged != charges[j].Cost {
			errs = append(errs, settleError(charges[j].Result.Check.Rule, err))
		}
	}
	if errs == nil { // none is known to have failed
		errs = []error{fmt.Errorf("middleware: settle: %w", err)}
	}
	return errs
}

// refundBy refunds the rules with ChargeOn that do not list the status. A request that
// has ended stays charged: otherwise clients that hang up would not be counted. So does a
// connection that the handler takes over, because what is answered on it is not known.
func (s *requestState) refundBy(status int) {
	if status == http.StatusSwitchingProtocols || s.Context.Err() != nil {
		return
	}
	var free []ruleCost
	for _, r := range s.current().Results {
		if on := s.set.chargeOn(r.Check.Rule); on != nil && !slices.Contains(on, status) && s.claim(r.Check.Rule) == nil {
			free = append(free, ruleCost{rule: r.Check.Rule})
		}
	}
	if len(free) == 0 {
		return
	}
	if err := errors.Join(s.settleAll(s.Context, free)...); err != nil {
		s.by.unrefunded.Do(func() { s.by.logger.Error("ratelimit: charge not refunded", "status", status, "error", err) })
	}
}
