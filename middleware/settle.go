package middleware

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/naming"
	"github.com/seed75154129/ratelimit/internal/near"
)

// ErrNoRule means that no rule has this name, or that no Middleware is in the context.
var ErrNoRule = errors.New("middleware: no such rule")

// Settle sets what the request behind ctx costs under one rule: the units that a query,
// an upload or a language model has used in the end. 0 refunds the whole charge. A cost
// above the charge may put the key into debt. A bucket pays its debt off as it refills; a
// window forgets its debt when it ends, a sliding_window one window later. The response
// headers stay: they were written before the handler ran.
//
// Settle returns nil and does nothing if the rule does not apply to the request, or has
// charged nothing. The error wraps [ErrNoRule] if no rule has this name, or if ctx is not
// that of a request behind a Middleware, such as context.Background(). If several
// chained middlewares have one, Settle is for the innermost. The charge of a rule is settled
// once per request: by the first Settle, or by a refund of ChargeOn if the status is written
// before, or at the end of the request by [Add]. Further calls return an error. So do
// calls with negative units and, unless a [Hold] keeps the request from being over,
// calls after the handler has returned. If the limiter returns an error, so does Settle,
// and as far as is known, the charge stays.
//
// Any goroutine may call Settle.
func Settle(ctx context.Context, rule string, units int64) error {
	return SettleAll(ctx, map[string]int64{rule: units})
}

// SettleAll is [Settle] for several rules, by name, in one call of the limiter for each
// chained middleware. It settles the rules that it can. Its error names all other rules.
func SettleAll(ctx context.Context, units map[string]int64) error {
	var errs []error
	rest := slices.Sorted(maps.Keys(units))
	for s := stateOf(ctx); s != nil && len(rest) > 0; s = s.outer {
		var outer []string
		var claimed []ruleCost
		for _, rule := range rest {
			if s.find(rule) < 0 {
				outer = append(outer, rule)
			} else if err := s.claim(rule, units[rule], false); err != nil {
				errs = append(errs, settleError(rule, err))
			} else {
				claimed = append(claimed, ruleCost{rule, units[rule]})
			}
		}
		errs, rest = append(errs, s.settleAll(ctx, claimed)...), outer
	}
	for _, rule := range rest {
		errs = append(errs, unknown(ctx, rule))
	}
	return errors.Join(errs...)
}

// ruleNames are the names of all rules that this process has had. A request that no rule
// of a Middleware applies to passes it without a trace in its context.
var ruleNames sync.Map

type passedKey struct{}

// passed marks a request that no rule applies to, so that its context can be told from one
// that is of no request. Requests that net/http serves need no mark.
func passed(r *http.Request) *http.Request {
	if ctx := r.Context(); !ofRequest(ctx) {
		return r.WithContext(context.WithValue(ctx, passedKey{}, true))
	}
	return r
}

// ofRequest reports whether a context is that of a request.
func ofRequest(ctx context.Context) bool {
	return ctx.Value(http.ServerContextKey) != nil || ctx.Value(passedKey{}) != nil || stateOf(ctx) != nil
}

// unknown returns an error if no rule has this name, or if ctx is of no request behind a
// Middleware.
func unknown(ctx context.Context, rule string) error {
	if _, ok := ruleNames.Load(rule); ok {
		if ofRequest(ctx) {
			return nil // it does not apply to the request
		}
		return fmt.Errorf("%w: %.64q: this context is of no request; pass on that of the request", ErrNoRule, rule)
	}
	var names []string
	for name := range ruleNames.Range {
		names = append(names, name.(string))
	}
	slices.Sort(names)
	mend := "write the Name of a rule"
	if best := near.Word(rule, names); best != "" {
		mend = fmt.Sprintf("did you mean %q?", best)
	}
	return fmt.Errorf("%w: %.64q; %s", ErrNoRule, rule, mend)
}

// A ruleCost is what a request costs by a rule in the end.
type ruleCost struct {
	rule  string
	units int64
}

func settleError(rule string, err error) error {
	return fmt.Errorf("middleware: settle: rule %q: %w", rule, err)
}

// claim allows its caller to settle a rule, which no other caller may do then. A status
// does not settle what was added to.
func (s *requestState) claim(rule string, cost int64, byStatus bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.use(rule)
	switch {
	case cost < 0:
		return fmt.Errorf("units must not be negative, got %d", cost)
	case s.holds == 0:
		return errors.New("the handler has returned; settle before that, or call Hold first")
	case u.settled || byStatus && u.added:
		return errors.New("settled before; a rule's charge is settled once per request")
	}
	u.settled = true
	return nil
}

// A part is one charge of a request, and what it is to cost.
type part struct {
	window int // index of its check's result in the decision
	first  bool
	taken  *algorithms.Result
	now    algorithms.Result
	cost   int64
}

// parts distributes costs over the charges of each window. The last charge is refunded
// first, and bears what is above the sum.
func (s *requestState) parts(costs []ruleCost) (parts []part) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.decision.Results {
		r := &s.decision.Results[i]
		at := slices.IndexFunc(costs, func(c ruleCost) bool { return c.rule == r.Check.Rule })
		if at < 0 {
			continue
		}
		u, begin := s.use(r.Check.Rule), len(parts)
		parts = append(parts, part{window: i, first: true, taken: r})
		for j := range u.more {
			if u.more[j].Charged > 0 && naming.Of(&u.more[j].Check) == naming.Of(&r.Check) {
				parts = append(parts, part{window: i, taken: &u.more[j]})
			}
		}
		if parts[len(parts)-1].taken.Charged == 0 {
			parts = parts[:begin]
			continue
		}
		rest := max(costs[at].units-u.spent, 0)
		for j := range parts[begin:] {
			p := &parts[begin+j]
			p.now, p.cost = *p.taken, min(p.taken.Charged, rest)
			rest -= p.cost
		}
		parts[len(parts)-1].cost += rest
	}
	return parts
}

// settleAll settles claimed rules, in one call of the limiter. Each error names its rule.
func (s *requestState) settleAll(ctx context.Context, costs []ruleCost) (errs []error) {
	parts := s.parts(costs)
	var charges []algorithms.Charge
	var changed []*part
	for i := range parts {
		if p := &parts[i]; p.taken.Charged != p.cost {
			charges = append(charges, algorithms.Charge{Result: *p.taken, Cost: p.cost})
			changed = append(changed, p)
		}
	}
	var err error
	if len(charges) > 0 {
		var results []algorithms.Result
		if results, err = s.by.limiter.Settle(ctx, charges...); len(results) == len(charges) {
			for j, p := range changed {
				p.now = results[j]
			}
			for _, p := range changed {
				s.countSettled(p, changed)
			}
		}
	}
	if len(parts) > 0 {
		errs = s.note(parts, err)
	}
	if err != nil && errs == nil { // none is known to have failed
		errs = []error{fmt.Errorf("middleware: settle: %w", err)}
	}
	s.by.unsettled.Add(uint64(len(errs)))
	return errs
}

// note puts what charges cost now into the decision, all charges of a window together. It
// returns an error for each rule that the limiter has not settled.
func (s *requestState) note(parts []part, err error) (errs []error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := slices.Clone(s.decision.Results) // the old ones may be read
	for i := range parts {
		p := &parts[i]
		u, r := s.use(p.now.Check.Rule), &now[p.window]
		if err != nil && p.now.Charged != p.cost && u.err == nil {
			u.err = err
			errs = append(errs, settleError(u.rule, err))
		}
		if p.first {
			*r = p.now
			r.Charged += u.spent
		} else {
			r.Charged += p.now.Charged
			if !p.now.At.Before(r.At) { // one settlement is at one time, and its last charge has the last word
				r.At, r.Remaining, r.RetryAfter, r.ResetAfter = p.now.At, p.now.Remaining, p.now.RetryAfter, p.now.ResetAfter
			}
		}
	}
	s.decision.Results = now
	return errs
}

// countSettled counts what a settlement has charged or refunded, once for all windows of
// its rule. The debt is that of the window which is furthest beyond its limit.
func (s *requestState) countSettled(p *part, all []*part) {
	if s.find(p.now.Check.Rule) != p.window {
		return
	}
	c, units := s.set.seriesOf(p.now.Check.Rule), p.now.Charged-p.taken.Charged
	if units <= 0 {
		c.refunded.Add(uint64(-units))
		return
	}
	c.charged.Add(uint64(units))
	var debt int64
	for _, other := range all {
		if other.now.Check.Rule == p.now.Check.Rule {
			debt = max(debt, beyond(other.now.Charged-other.taken.Charged, other.now.Remaining))
		}
	}
	c.debt.Add(uint64(debt))
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
		if on := s.set.chargeOn(r.Check.Rule); on != nil && !slices.Contains(on, status) && s.claim(r.Check.Rule, 0, true) == nil {
			free = append(free, ruleCost{rule: r.Check.Rule})
		}
	}
	if len(free) == 0 {
		return
	}
	if err := errors.Join(s.settleAll(s.Context, free)...); err != nil {
		s.by.unrefunded.Do(func() { s.by.config.Logger.Error("ratelimit: charge not refunded", "status", status, "error", err) })
	}
}
